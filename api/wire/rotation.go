package wire

import "github.com/carillon-scheduler/carillon/job"

// RotateRequest asks for a new CA and cluster key.
type RotateRequest struct {
	// DistrustOld has the CA in use no longer vouch for any node: its key may be known to others. Tokens and clients
	// that know the cluster by it have to be replaced.
	DistrustOld bool `json:"distrust_old,omitempty"`
	Abort       bool `json:"abort,omitempty"` // gives up the rotation that is under way
	Force       bool `json:"force,omitempty"` // also if tokens that are in use do not find the cluster afterwards
}

// Rotation is the replacement of a cluster's CA and cluster key.
type Rotation struct {
	CA          string      `json:"ca"`             // the hash of the CA in use, as tokens have it
	Next        string      `json:"next,omitempty"` // of the one that takes its place; empty: no rotation is under way
	DistrustOld bool        `json:"distrust_old,omitempty"`
	StartedAt   job.Instant `json:"started_at,omitzero"`
	StartedBy   string      `json:"started_by,omitempty"`
	Confirmed   []string    `json:"confirmed,omitempty"` // members that have what they need of it
	Missing     []string    `json:"missing,omitempty"`   // members that have not; it is finished when there are none
	// Suspended are the API tokens that are suspended. It is in the answer to a request with distrust_old only.
	Suspended []Token `json:"suspended,omitempty"`
}

// BackupNote says that a node is about to give out its state.
type BackupNote struct {
	NodeID string `json:"node_id"`
	Keys   bool   `json:"keys,omitempty"` // its keys are taken along, from its files
}

package wire

import "github.com/carillon-scheduler/carillon/job"

// JoinRequest is how a node asks to become a member, or says that it is one and has changed.
type JoinRequest struct {
	NodeID     string            `json:"node_id"`
	InstanceID string            `json:"instance_id"` // of its data directory
	Address    string            `json:"address"`     // host:port that it advertises
	Version    string            `json:"version,omitempty"`
	Level      int               `json:"level"` // the feature level that it supports
	Slots      int               `json:"slots,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ClusterID  string            `json:"cluster_id,omitempty"` // the cluster that its directory belongs to, if it does
	Epoch      uint64            `json:"epoch,omitempty"`
	Member     bool              `json:"member,omitempty"` // it has state of the cluster: refused if it is no longer a member
}

// JoinReply says which cluster took the node in.
type JoinReply struct {
	ClusterID string `json:"cluster_id"`
	Epoch     uint64 `json:"epoch"`
	Index     uint64 `json:"index"` // the log entry that made it a member, or moved it
	Leader    string `json:"leader"`
}

// NodeRequest names a member.
type NodeRequest struct {
	NodeID string `json:"node_id,omitempty"`
	Force  bool   `json:"force,omitempty"` // of a transfer: also to a node whose clock is wrong or not known
}

// NodeInfo is what one node says of itself alone, leader or not.
type NodeInfo struct {
	NodeID     string      `json:"node_id"`
	InstanceID string      `json:"instance_id"`
	ClusterID  string      `json:"cluster_id"`
	Epoch      uint64      `json:"epoch"`
	Address    string      `json:"address"`
	Version    string      `json:"version"`
	Level      int         `json:"level"`
	State      string      `json:"state"`
	Leader     string      `json:"leader"`
	Term       uint64      `json:"term"`
	Applied    uint64      `json:"applied_index"` // everything up to this log entry is in its state
	Now        job.Instant `json:"now"`
	Removed    bool        `json:"removed,omitempty"` // it is no longer a member
}

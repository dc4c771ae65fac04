package wire

import (
	"encoding/json"

	"github.com/carillon-scheduler/carillon/job"
)

// ApplyOptions say how jobs are applied.
type ApplyOptions struct {
	DryRun bool   // only say what would be done
	Set    string // the set that the jobs are put into, by their tag job.SetTag; empty: that of a job stays
	// TakeOver takes jobs out of the set that they are in.
	TakeOver bool
	// Calendars are taken as there by a dry run: they will be before the jobs are applied.
	Calendars []string
}

// The statuses of an ApplyResult, besides "error".
const (
	ApplyCreated   = "created"
	ApplyChanged   = "changed"
	ApplyUnchanged = "unchanged"
)

// ApplyResult answers one line of an apply. With a dry run it is what would be.
type ApplyResult struct {
	BulkResult
	Namespace string         `json:"namespace,omitempty"`
	NextRunAt job.Instant    `json:"next_run_at,omitzero"` // of a job that was created or changed
	Changes   []ChangedField `json:"changes,omitempty"`
}

// ChangedField is a field of a job that an apply changes, as it is shown, with its defaults. What is left out is not
// there.
type ChangedField struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Large says that the values are left out because one of them has more than MaxChange bytes.
	Large bool `json:"large,omitempty"`
}

// MaxChange is how large a value is at most that is shown before and after.
const MaxChange = 16 << 10

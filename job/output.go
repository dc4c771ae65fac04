package job

// Output is a part of what a running attempt wrote. It goes from the worker to the leader while it is watched, and is
// never stored.
type Output struct {
	Session SessionRef `json:"session"`
	Fence   uint64     `json:"fence"`
	Offset  int64      `json:"offset"` // of Data in all that was written; a gap was too long ago to be kept
	Data    []byte     `json:"data"`
}

// OutputReply answers an Output.
type OutputReply struct {
	Watched bool `json:"watched"` // more is wanted
}

// RunOutput is a part of the output of a run's last attempt.
type RunOutput struct {
	RunID   string    `json:"run_id"`
	Status  RunStatus `json:"status"`
	Attempt int       `json:"attempt,omitempty"`
	Fence   uint64    `json:"fence,omitempty"`
	Offset  int64     `json:"offset"` // where the text begins in the output of the attempt, as far as that is known
	Next    int64     `json:"next"`   // what to ask for next
	Text    string    `json:"text"`
	Done    bool      `json:"done"` // the run is finished: there will be no more
}

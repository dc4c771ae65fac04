package wire

// ScrubStatus is how far the leaders of a cluster's groups have compared the states of the replicas.
type ScrubStatus struct {
	Groups []GroupScrub `json:"groups"`
}

// GroupScrub is the pass over the state of one group that its leader was asked for last.
type GroupScrub struct {
	Group   uint32   `json:"group"`
	Leader  string   `json:"leader"`
	Pass    uint64   `json:"pass"` // the number that this leader gave it; 0: it was not asked
	Done    bool     `json:"done"`
	Bytes   int64    `json:"bytes"`
	Of      int64    `json:"of_bytes"`
	Differ  []string `json:"differ"`          // nodes whose state is not that of most
	Missing []string `json:"missing"`         // voters that were not compared: they do not answer, or are behind
	Split   string   `json:"split,omitempty"` // where the states differ, if none has a majority
}

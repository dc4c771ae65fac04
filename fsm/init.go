package fsm

// Init names a new cluster and the group that the log belongs to.
type Init struct {
	Head      `codec:"h"`
	ClusterID string `codec:"c"`
	Group     uint32 `codec:"g"`
}

func (c *Init) apply(a *applier) error {
	info := a.b.Info()
	if info.ClusterID != "" {
		a.outcome(Outcome{Code: CodeRefused, Text: "the cluster has an id already"})
		return nil
	}
	info.ClusterID, info.Group = c.ClusterID, c.Group
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK})
	return nil
}

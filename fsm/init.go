package fsm

// Init names a new cluster.
type Init struct {
	Head      `codec:"h"`
	ClusterID string `codec:"c"`
}

func (c *Init) apply(a *applier) error {
	info := a.b.Info()
	if info.ClusterID != "" {
		a.outcome(Outcome{Code: CodeRefused, Text: "the cluster has an id already"})
		return nil
	}
	info.ClusterID = c.ClusterID
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK})
	return nil
}

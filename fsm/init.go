package fsm

import "github.com/carillon-scheduler/carillon/store"

// Init names a new cluster and the group that the log belongs to. Admin, if it has an id, is the first token: without
// one nobody could make another.
type Init struct {
	Head      `codec:"h"`
	ClusterID string      `codec:"c"`
	Group     uint32      `codec:"g"`
	Admin     store.Token `codec:"a,omitempty"`
}

func (c *Init) apply(a *applier) error {
	info := a.b.Info()
	if info.ClusterID != "" {
		a.outcome(Outcome{Code: CodeRefused, Text: "the cluster has an id already"})
		return nil
	}
	if c.Admin.ID != "" {
		if o, err := a.createToken(c.Admin); err != nil || o.Code != CodeOK {
			a.outcome(o)
			return err
		}
	}
	info.ClusterID, info.Group = c.ClusterID, c.Group
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK})
	return nil
}

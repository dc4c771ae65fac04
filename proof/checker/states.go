package checker

// states: two replicas that take part have one state at one applied entry. Those that have two are of two histories,
// and nobody would know: each goes on, and what a client reads depends on who leads.
func (c *checker) states() {
	first := map[uint64]Replica{}
	for _, r := range c.in.States {
		if r.Stopped {
			continue
		}
		switch f, ok := first[r.Index]; {
		case !ok:
			first[r.Index] = r
		case f.Digest != r.Digest:
			c.bad(RuleReplicas, nil, int64(r.At), "%s has the state %s at entry %d, and %s has %s there: neither has "+
				"stopped", r.Node, r.Digest, r.Index, f.Node, f.Digest)
			return
		}
	}
}

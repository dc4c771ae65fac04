package checker

// epochs: once the cluster has gone on at an epoch, nobody leads at an earlier one. Those who would are nodes that a
// recovery gave up, and what they execute the others execute as well.
func (c *checker) epochs() {
	for i, t := range c.in.Takeovers {
		for _, earlier := range c.in.Takeovers[:i] {
			if earlier.Epoch > t.Epoch {
				c.bad(RuleEpoch, nil, int64(t.At), "%s led term %d at epoch %d from %s on, and %s had led term %d at "+
					"epoch %d since %s", t.Node, t.Term, t.Epoch, t.At, earlier.Node, earlier.Term, earlier.Epoch,
					earlier.At)
				break
			}
		}
	}
}

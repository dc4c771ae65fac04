package fsm

import "fmt"

// Columns that must have one entry an item. A batch whose columns differ in length is corrupt, and reading it by index would
// take the node down in the middle of an apply.

func sameLength(name string, n int, lens ...int) error {
	for _, l := range lens {
		if l != n {
			return fmt.Errorf("fsm: %s: columns of different lengths", name)
		}
	}
	return nil
}

func (c *Claim) columns() error {
	n := len(c.Jobs)
	if err := sameLength("claim", n, len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady), len(c.Worker)); err != nil {
		return err
	}
	for _, w := range c.Worker {
		if int(w) >= len(c.Workers) {
			return fmt.Errorf("fsm: claim: worker %d of %d", w, len(c.Workers))
		}
	}
	return optional("claim", n, len(c.Keys))
}

func (c *Complete) columns() error {
	n := len(c.Jobs)
	if err := sameLength("complete", n, len(c.At), len(c.Origin), len(c.Fence), len(c.Result), len(c.Reason), len(c.RetryAt), len(c.Started), len(c.Ended)); err != nil {
		return err
	}
	return optional("complete", n, len(c.Error), len(c.Output))
}

func (c *Expire) columns() error {
	return sameLength("expire", len(c.Jobs), len(c.At), len(c.Origin), len(c.Fence))
}

func (c *Advance) columns() error {
	return sameLength("advance", len(c.Jobs), len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady), len(c.Gaps), len(c.Catchup))
}

func (c *Cleanup) columns() error {
	return sameLength("cleanup", len(c.Jobs), len(c.Lane), len(c.Ready))
}

func (c *Backfill) columns() error { return optional("backfill", len(c.At), len(c.Keys)) }

func optional(name string, n int, lens ...int) error {
	for _, l := range lens {
		if l != 0 && l != n {
			return fmt.Errorf("fsm: %s: columns of different lengths", name)
		}
	}
	return nil
}

// at is an optional column's entry.
func at(col []string, i int) string {
	if i < len(col) {
		return col[i]
	}
	return ""
}

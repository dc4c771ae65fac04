package sealer

// Cursors hide the cursors of lists from a token. A cursor is a place in what was looked at, and that may be a job, a
// run or a number of a namespace that its holder may not see. Of nil, they stay as they are.
type Cursors struct{ Sealer }

// hiddenCursor is what a hidden cursor begins with. No other does: what a group answers to a node that asks several of
// them is hidden, but where that node goes on behind a row is not.
const hiddenCursor = "C"

// CursorsOf are those of a token, by the keys that a node has in common with others. One that does not vote has none:
// its cursors, by its own, are for itself.
func CursorsOf(token string, common func() ([][]byte, error), own []byte) *Cursors {
	var keys [][]byte
	if common != nil {
		keys, _ = common() //nolint:errcheck // it says that there are none
	}
	return &Cursors{Sealer{Token: token, Keys: append(keys[:len(keys):len(keys)], own)}}
}

// Hide makes a cursor that only a node can read.
func (c *Cursors) Hide(cursor string) string {
	if c == nil || cursor == "" {
		return cursor
	}
	return hiddenCursor + c.Sealer.Hide("cursor", cursor)
}

// Show is a cursor that was hidden, or one that never was; false: it was not hidden from this token.
func (c *Cursors) Show(cursor string) (string, bool) {
	if c == nil || cursor == "" || cursor[:1] != hiddenCursor {
		return cursor, true
	}
	return c.Sealer.Show("cursor", cursor[1:])
}

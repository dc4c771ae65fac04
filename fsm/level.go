package fsm

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/carillon-scheduler/carillon/store"
)

// level is what the linker may set, to build a binary of a later level for tests of upgrades:
//
//	go build -ldflags '-X github.com/carillon-scheduler/carillon/fsm.level=2'
var level = "1"

// Level is the feature level that this binary supports. Whatever changes the meaning or the format of a command raises
// it; until a level is committed (SetLevel), which happens when every member supports it, the binary speaks as the
// committed one does.
var Level = func() int {
	n, err := strconv.Atoi(level)
	if err != nil || n < 1 {
		panic("fsm: level " + level + " was linked in, which is not a number above 0")
	}
	return n
}()

// CheckLevel refuses a state whose committed level is above the one supported: it may contain what this binary would
// misread.
func CheckLevel(committed, supported int) error {
	supported = cmp.Or(supported, Level)
	if committed > supported {
		return fmt.Errorf("the cluster is at feature level %d, and this binary supports levels up to %d: start this "+
			"node with the newer carillon that the others run", committed, supported)
	}
	return nil
}

// SetLevel commits a feature level: from here on every member may be sent what that level added.
type SetLevel struct {
	Head  `codec:"h"`
	Level int `codec:"l"`
}

// apply commits a feature level. It only rises: what a higher one wrote stays in the log and in the state.
func (c *SetLevel) apply(a *applier) error {
	info := a.b.Info()
	short, members := "", 0
	err := a.b.EachNode(func(n store.Node) {
		if n.Removed {
			return
		}
		members++
		if n.Level < c.Level && short == "" {
			short = n.ID
		}
	})
	if err != nil {
		return err
	}
	switch {
	case members == 0: // no member has said what it supports
		a.outcome(Outcome{Code: CodeRefused, Text: "no member is known"})
	case short != "":
		a.outcome(Outcome{Code: CodeRefused, Text: "node " + short + " does not support the level"})
	case c.Level <= info.Level:
		a.outcome(Outcome{Code: CodeStale})
	default:
		info.Level = c.Level
		a.b.SetInfo(info)
		a.outcome(Outcome{Code: CodeOK, Count: 1})
	}
	return nil
}

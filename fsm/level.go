package fsm

import (
	"fmt"
	"strconv"
)

// level is what the linker may set, to build a binary of a later level for tests of upgrades:
//
//	go build -ldflags '-X github.com/carillon-scheduler/carillon/fsm.level=2'
var level = "1"

// Level is the feature level that this binary supports. Whatever changes the meaning or the format of a command raises it; until a level
// is committed (SetLevel), which happens when every member supports it, the binary speaks as the committed one does.
var Level = func() int {
	n, err := strconv.Atoi(level)
	if err != nil || n < 1 {
		panic("fsm: level " + level + " was linked in, which is not a number above 0")
	}
	return n
}()

// later has the commands that came after level 1, with their levels. An older binary stops at an entry of a type that it does not know, so a
// command is proposed only once its level is committed.
var later = map[Type]int{}

// CommandLevel is the feature level that must be committed before a command may be proposed.
func CommandLevel(cmd any) (int, error) {
	t, ok := typeOf(cmd)
	if !ok {
		return 0, fmt.Errorf("fsm: %T is not a command", cmd)
	}
	return max(1, later[t]), nil
}

// CheckLevel refuses a state whose committed level is above the one supported: it may contain what this binary would misread.
func CheckLevel(committed, supported int) error {
	if supported == 0 {
		supported = Level
	}
	if committed > supported {
		return fmt.Errorf("the cluster is at feature level %d and this binary supports levels up to %d: start this node with the newer carillon that the others run", committed, supported)
	}
	return nil
}

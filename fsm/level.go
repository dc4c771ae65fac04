package fsm

import (
	"fmt"
	"strconv"
)

// level is what the linker may set, to build a binary of a later level for tests of upgrades:
//
//	go build -ldflags '-X github.com/carillon-scheduler/carillon/fsm.level=5'
var level = "4"

// HoldLevel is the level that added the hold of a restored cluster. An earlier binary would not see it, and fire everything in it at once.
const HoldLevel = 2

// NotifyLevel is the level that added notify to jobs. An earlier binary would not see that a job fails, and tell nobody.
const NotifyLevel = 3

// EditLevel is the level that added Update.After and Backfill.Left. An earlier binary would not see them, and have a shorter history.
const EditLevel = 3

// ShortLevel is the level that added the short form of definitions. An earlier binary would find nothing in them.
const ShortLevel = 4

// Level is the feature level that this binary supports. Whatever changes the meaning or the format of a command raises it; until a level
// is committed (SetLevel), which happens when every member supports it, the binary speaks as the committed one does.
var Level = func() int {
	n, err := strconv.Atoi(level)
	if err != nil || n < 1 {
		panic("fsm: level " + level + " was linked in, which is not a number above 0")
	}
	return n
}()

// introduced is the level that brought each command. An older binary stops at an entry of a type that it does not know, so a command is
// proposed only once its level is committed.
var introduced = map[Type]int{
	TypeCreate: 1, TypeUpdate: 1, TypeDelete: 1, TypePause: 1, TypeResume: 1, TypeTrigger: 1, TypeBackfill: 1, TypeClaim: 1,
	TypeComplete: 1, TypeExpire: 1, TypeAdvance: 1, TypeCancel: 1, TypeRedrive: 1, TypePurge: 1, TypeTrim: 1, TypeStamp: 1,
	TypeCalendar: 1, TypeQuarantine: 1, TypeClockReset: 1, TypeCleanup: 1, TypeInit: 1, TypePutNode: 1, TypeRemoveNode: 1, TypeSetLevel: 1,

	TypeRelease: HoldLevel, TypeLose: HoldLevel,
	TypePutQueue: 2, TypeDeleteQueue: 2,
	TypeAdmit:        2,
	TypeClaimNotices: NotifyLevel, TypeSettleNotices: NotifyLevel,
}

// CommandLevel is the feature level that must be committed before a command may be proposed.
func CommandLevel(cmd any) (int, error) {
	t, ok := typeOf(cmd)
	if !ok {
		return 0, fmt.Errorf("fsm: %T is not a command", cmd)
	}
	l, ok := introduced[t]
	if !ok {
		return 0, fmt.Errorf("fsm: nobody said which feature level brought command %d (%T)", t, cmd)
	}
	if u, ok := cmd.(*Update); ok && u.After != nil {
		l = EditLevel
	}
	if b, ok := cmd.(*Backfill); ok && len(b.Left) > 0 {
		l = EditLevel
	}
	return l, nil
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

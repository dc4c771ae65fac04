// Package fsm is the deterministic state machine: the commands that travel through the log, what each does to the
// state, and how the state becomes a snapshot and back. It reads no clock, no zone and no random number; what depends
// on those is computed by the proposer and stands in the command.
package fsm

import (
	"fmt"
	"reflect"

	"github.com/carillon-scheduler/carillon/job"
)

// Command is one kind of entry of the log. What belongs to it is in one file: its form, what makes it well formed, and
// what it does.
type Command interface {
	head() *Head
	items() int             // how many outcomes it has
	check() error           // what makes it impossible to apply, such as columns of different lengths
	stopsOnHold() bool      // see Head.stopsOnHold
	apply(a *applier) error // one outcome an item; an error means that the store failed, and ends the process
}

// commands has every command under the number that its entries begin with, and the feature level that brought it.
// Numbers are never given to anything else. An older binary stops at an entry of a number that it does not know, so a
// command is proposed only once its level is committed. The last column is what an audit record calls it, or unrecorded
// for what no caller asks for.
var commands = [256]kind{
	1:  of[Create](1, "job.create"),
	2:  of[Update](1, "job.update"),
	3:  of[Delete](1, "job.delete"),
	4:  of[Pause](1, "job.pause"),
	5:  of[Resume](1, "job.resume"),
	6:  of[Trigger](1, "job.run"),
	7:  of[Backfill](1, "job.backfill"),
	8:  of[Claim](1, unrecorded),
	9:  of[Complete](1, unrecorded),
	10: of[Expire](1, unrecorded),
	11: of[Advance](1, unrecorded),
	12: of[Cancel](1, "job.cancel run.cancel"),
	13: of[Redrive](1, "dead.redrive"),
	14: of[Purge](1, "dead.purge"),
	15: of[Trim](1, unrecorded),
	16: of[Stamp](1, unrecorded),
	17: of[Calendar](1, "calendar.put calendar.delete"),
	18: of[Quarantine](1, unrecorded),
	19: of[ClockReset](1, "cluster.clock-reset"),
	20: of[Cleanup](1, unrecorded),
	21: of[Init](1, unrecorded),
	22: of[PutNode](1, "member.join member.remove"),
	23: of[RemoveNode](1, "member.remove"),
	24: of[SetLevel](1, unrecorded),
	25: of[Release](1, "cluster.release"),
	26: of[CloseRestored](1, unrecorded),
	27: of[PutQueue](1, "queue.put queue.pause queue.resume"),
	28: of[DeleteQueue](1, "queue.delete"),
	29: of[ClaimNotices](1, unrecorded),
	30: of[SettleNotices](1, unrecorded),
	31: of[Admit](1, unrecorded),
	32: of[Lookup](1, unrecorded),
	33: of[CreateToken](1, "token.create"),
	34: of[RevokeToken](1, "token.revoke"),
	35: of[MakeSecure](1, unrecorded),
	36: of[CreateJoinToken](1, "join-token.create"),
	37: of[RevokeJoinToken](1, "join-token.revoke"),
	38: of[Note](1, "backup.create backup.keys member.promote member.demote cluster.transfer cluster.move-group"),
	39: of[PutSecret](1, "secret.set"),
	40: of[DeleteSecret](1, "secret.delete"),
	41: of[ResealSecrets](1, "secret.reseal"),
	42: of[BeginRotation](1, "cluster.rotate-ca cluster.distrust-ca"),
	43: of[ConfirmCA](1, unrecorded),
	44: of[AbortRotation](1, "cluster.rotate-ca-abort"),
	45: of[ResumeToken](1, "token.resume"),
	46: of[PutGroup](1, unrecorded),
	47: of[ActivateGroups](1, unrecorded),
	48: of[Reserve](1, unrecorded),
	49: of[ConfirmNames](1, unrecorded),
	50: of[ReleaseNames](1, unrecorded),
	51: of[AbortNames](1, unrecorded),
	52: of[PaidNames](1, unrecorded),
	53: of[GrowGroups](1, "cluster.grow-groups"),
	54: of[Scrub](1, unrecorded),
}

const numberOfScrub = 54

type kind struct {
	level int
	typ   reflect.Type
	make  func() Command

	actions string // of its audit records, separated by spaces
}

func of[C any, P interface {
	*C
	Command
}](level int, actions string) kind {
	return kind{level, reflect.TypeFor[P](), func() Command { return P(new(C)) }, actions}
}

// kindOf is the row of a command in the table, a zero one if it has none.
func kindOf(cmd Command) *kind { return &commands[numbers[reflect.TypeOf(cmd)]] }

var numbers = func() map[reflect.Type]uint8 {
	m := map[reflect.Type]uint8{}
	for n := range commands {
		if commands[n].make != nil {
			m[commands[n].typ] = uint8(n)
		}
	}
	return m
}()

// CommandLevel is the feature level that must be committed before a command may be proposed.
func CommandLevel(cmd Command) (int, error) {
	n, ok := numbers[reflect.TypeOf(cmd)]
	if !ok {
		return 0, fmt.Errorf("fsm: %T has no number: add it to commands", cmd)
	}
	return commands[n].level, nil
}

// Head is in every command, and what most commands are like.
type Head struct {
	Now  int64  `codec:"w"` // the proposer's stamp, ms
	Term uint64 `codec:"t"` // the proposer's term; refused unless it is the entry's own

	By *Caller `codec:"b,omitempty"` // who asked for it; nil: no request did, and it leaves no audit record
}

func (h *Head) head() *Head { return h }

func (*Head) items() int { return 1 }

func (*Head) check() error { return nil }

// stopsOnHold says that a command is of the kind that time brings about by itself. While a restored cluster is on hold,
// nothing of that kind has any effect. What people ask for is judged where it is done: edits, creates, pauses and
// cancels are done, new runs are refused. Results are taken: a worker that had a run in hand when the backup was made
// knows how it ended.
func (*Head) stopsOnHold() bool { return false }

// Request identifies a mutating request of a client.
type Request struct {
	ID          string `codec:"i,omitempty"`
	Fingerprint uint64 `codec:"f,omitempty"`
	Expires     int64  `codec:"e,omitempty"` // ms; when its outcome may be forgotten
}

// When is the place of a job's next occurrence as the proposer computed it. At 0: there is none.
type When struct {
	At    int64 `codec:"a,omitempty"`
	Ready int64 `codec:"r,omitempty"` // At plus jitter
}

// Gap is an interval of occurrences that do not run, as the proposer counted it. Count 0: none.
type Gap struct {
	First   int64         `codec:"f,omitempty"`
	Last    int64         `codec:"l,omitempty"`
	Count   int64         `codec:"c,omitempty"`
	AtLeast bool          `codec:"m,omitempty"`
	Status  job.RunStatus `codec:"s,omitempty"`
	Reason  job.Reason    `codec:"r,omitempty"`
}

// Seen is where the proposer saw a job's state: a command that names another place or generation is answered CodeMoved
// and recomputed.
type Seen struct {
	Gen    uint32 `codec:"g"`
	Parked bool   `codec:"p,omitempty"`
	At     int64  `codec:"a,omitempty"`
	Ready  int64  `codec:"r,omitempty"`
}

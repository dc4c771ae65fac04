//go:build carillon_mutants

package mutant

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Built says whether faults can be planted in this build.
const Built = true

// names are in lines of their own, so that additions from different sides stand beside each other.
var names = [count]string{
	None:            "none",
	SkipFence:       "skip-fence",
	DispatchEarly:   "dispatch-early",
	ForgetTerm:      "forget-term",
	DropCatchup:     "drop-catchup",
	LeakOverlap:     "leak-overlap",
	ReuseKey:        "reuse-key",
	ExpireEarly:     "expire-early",
	IgnoreGen:       "ignore-gen",
	BacklogMissed:   "backlog-missed",
	LoseEvents:      "lose-events",
	EarlyDeadline:   "early-deadline",
	RepeatOnce:      "repeat-once",
	ForgetNotRun:    "forget-not-run",
	IgnoreQueue:     "ignore-queue",
	Revive:          "revive",
	OldReceipt:      "old-receipt",
	PollOffersTwice: "poll-offers-twice",
	OutOfOrder:      "out-of-order",
	GiveTwice:       "give-twice",
	TrustLeader:     "trust-leader",
	InheritedDead:   "inherited-dead",
	ReleaseUnproven: "release-unproven",
	KeepLeading:     "keep-leading",
	WrongSuccessor:  "wrong-successor",
	NoFinalStamp:    "no-final-stamp",
	MixPayload:      "mix-payload",
	StaleDefinition: "stale-definition",
	EditedTimeout:   "edited-timeout",
	ResendEdited:    "resend-edited",
	JudgeBySlot:     "judge-by-slot",
	SerialFirst:     "serial-first",
	InventNext:      "invent-next",
	TrimMore:        "trim-more",
	CleanEarly:      "clean-early",
	ForgetRequests:  "forget-requests",
	RepeatNotice:    "repeat-notice",
	DropNotice:      "drop-notice",
	NewestFirst:     "newest-first",
	HalfLease:       "half-lease",
	RetryUncounted:  "retry-uncounted",
	StaleCalendar:   "stale-calendar",
	RestoreFires:    "restore-fires",
	WrongNamespace:  "wrong-namespace",
	FreshKey:        "fresh-key",
	DropReservation: "drop-reservation",
	ReleaseAny:      "release-any",
	WrongGroup:      "wrong-group",
	ReusedReplica:   "reused-replica",
	RevivedReplica:  "revived-replica",
	GrowEarly:       "grow-early",
	SecretElsewhere: "secret-elsewhere",
	TrustChain:      "trust-chain",
	TrustLog:        "trust-log",
	TrustState:      "trust-state",
	TrustReads:      "trust-reads",
	EarlyProof:      "early-proof",
	TwoStates:       "two-states",
	ResealSkips:     "reseal-skips",
	TrustReplaced:   "trust-replaced",
	RotateEarly:     "rotate-early",
	OtherDirectory:  "other-directory",
	HeldSnapshot:    "held-snapshot",
	OldEpoch:        "old-epoch",
	OldFences:       "old-fences",
	FoundAlone:      "found-alone",
	PauseDrops:      "pause-drops",
	LateSkips:       "late-skips",
	NoRoom:          "no-room",
	EditedDelivery:  "edited-delivery",
	StaleRetry:      "stale-retry",
	ResumeRetries:   "resume-retries",
	LostWaits:       "lost-waits",
	RedriveCounts:   "redrive-counts",
	EndsBeforeMark:  "ends-before-mark",
	TakeAll:         "take-all",
	KeepClass:       "keep-class",
}

var active atomic.Uint32

func init() {
	name := os.Getenv("CARILLON_MUTANT")
	if name == "" {
		return
	}
	m, ok := Parse(name)
	if !ok {
		panic(fmt.Sprintf("CARILLON_MUTANT: there is no mutant %q", name))
	}
	Set(m)
}

// On says whether a fault is planted.
func On(m Mutant) bool { return Mutant(active.Load()) == m }

// Set plants one fault in place of the one before; None takes it away.
func Set(m Mutant) { active.Store(uint32(m)) }

// All are the faults.
func All() []Mutant {
	var out []Mutant
	for m := None + 1; m < count; m++ {
		out = append(out, m)
	}
	return out
}

// Parse finds a fault by its name.
func Parse(name string) (Mutant, bool) {
	for m, n := range names {
		if n == name {
			return Mutant(m), true
		}
	}
	return None, false
}

func (m Mutant) String() string { return names[m] }

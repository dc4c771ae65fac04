// Package stamp gives a leader the times that go into commands: its wall clock, never decreasing, and only while that
// can be trusted.
package stamp

import (
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Clock is what the leader reads. Waiting is done with package time.
type Clock interface {
	Now() time.Time      // wall
	Mono() time.Duration // monotonic, since some start
}

type machineClock struct{ start time.Time }

// NewClock is the machine's clock.
func NewClock() Clock { return machineClock{time.Now()} }

func (c machineClock) Now() time.Time      { return time.Now().Round(0) }
func (c machineClock) Mono() time.Duration { return time.Since(c.start) }

// Look reads both times at one moment. A process that is stopped between the two, or has to wait for a processor, would
// see a jump of its clock that there was none.
func Look(c Clock) (wall time.Time, mono time.Duration) {
	mono = c.Mono()
	for range 100 { // after that it is not by chance
		before := mono
		if wall, mono = c.Now(), c.Mono(); mono-before < MaxJump/20 {
			break
		}
	}
	return wall, mono
}

// MaxSkew is how far a leader's clock may be from the majority's.
const MaxSkew = 5 * time.Second

// MaxJump is how far wall and monotonic time may drift apart between two looks. A clock that is slewed stays far below
// it.
const MaxJump = time.Second

// state says whether the leader may stamp.
type state uint8

const (
	resuming state = iota // fit to stamp, once a takeover stamp is committed
	running
	jumped     // wall and monotonic time disagreed; wait until they agree again for a while
	behindMark // the wall clock is behind what was committed
	skewed     // the majority's clocks say something else
	alone      // the majority's clocks are not known yet
)

// Stamper gives out stamps: the wall clock, never decreasing, and only while it can be trusted. A stamp that is wrong
// by hours would fire or skip everything in between, and nothing can take that back.
type Stamper struct {
	src       Clock
	steadyFor time.Duration
	mark      func() int64 // the committed mark; read by the loop only, because it waits for the store
	skew      func() (d time.Duration, known bool)

	mu     sync.Mutex
	state  state
	wall   time.Time // at the last look
	mono   time.Duration
	last   int64         // the last stamp given out
	lastAt time.Duration // when the clock was last fit to stamp, on the monotonic one
	since  time.Duration // jumped: when it last did
	jump   time.Duration // jumped: by how much in total
	behind time.Duration // behind: by how much, when the loop last looked
	held   time.Duration // since when there are no stamps, on the monotonic clock
}

// New makes one that does not stamp yet: a takeover comes first. mark is the committed mark. skew, if it is not nil, is
// how far the clock is from the majority's, once that is known; it must not block.
func New(src Clock, steadyFor time.Duration, mark func() int64, skew func() (time.Duration, bool)) *Stamper {
	c := &Stamper{src: src, steadyFor: steadyFor, mark: mark, skew: skew}
	c.wall, c.mono = Look(src)
	c.last, c.held = mark(), c.mono
	return c
}

// become changes the state, and notes when stamping ended.
func (c *Stamper) become(s state) {
	if c.state == running && s != running {
		c.held = c.mono
	}
	c.state = s
}

// look reads both clocks and stops the stamps if they cannot be trusted. It is called at least once a second.
func (c *Stamper) look() {
	wall, mono := Look(c.src)
	off := wall.Sub(c.wall) - (mono - c.mono)
	c.wall, c.mono = wall, mono
	if off > MaxJump || off < -MaxJump {
		if c.state != jumped {
			c.become(jumped)
			c.jump = 0
		}
		c.jump += off
		c.since = mono
	}
	if c.state != running {
		return
	}
	if c.isSkewed() {
		c.become(skewed)
	} else if behind := c.last - wall.UnixMilli(); behind > MaxJump.Milliseconds() { // set back in small steps
		c.become(behindMark)
		c.behind = time.Duration(behind) * time.Millisecond
	}
}

// settle says what a clock is fit for that was told not to stamp.
func (c *Stamper) settle(mark int64) {
	if c.state == running || c.state == jumped && c.mono-c.since < c.steadyFor {
		return
	}
	floor := max(mark, c.last)
	behind := floor - c.wall.UnixMilli()
	switch {
	case c.isAlone():
		c.become(alone)
	case c.isSkewed():
		c.become(skewed)
	case behind > 0:
		c.become(behindMark)
		c.behind = time.Duration(behind) * time.Millisecond
	default:
		c.become(resuming)
		c.last = floor
	}
}

// Reset forgets stamps above one that an operator committed with `carillon cluster clock-reset`.
func (c *Stamper) Reset(to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = min(c.last, to)
}

func (c *Stamper) isSkewed() bool {
	if c.skew == nil {
		return false
	}
	d, _ := c.skew()
	return d > MaxSkew || d < -MaxSkew
}

// isAlone says that no other node can tell whether the clock is right. A leader that begins like that would stamp by a
// clock that may be off by hours; one that stamps already has been told that it is right, and goes on.
func (c *Stamper) isAlone() bool {
	if c.skew == nil {
		return false
	}
	_, known := c.skew()
	return !known
}

func (c *Stamper) next() int64 {
	c.last, c.lastAt = max(c.last, c.wall.UnixMilli()), c.mono
	return c.last
}

// Now is a stamp, or why there is none.
func (c *Stamper) Now() (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if c.state != running {
		return 0, c.refusal()
	}
	return c.next(), nil
}

// Resume is the stamp of a takeover, if one is due: at the start, and after every hold, so that the time in which no
// leader stamped counts as an outage. Only the loop calls it.
func (c *Stamper) Resume() (int64, bool) {
	mark := c.mark() // outside the lock: a caller that asks for the state of the clock may have the store open
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	c.settle(mark)
	if c.state != resuming {
		return 0, false
	}
	return c.next(), true
}

// Resumed says that the takeover stamp is committed. It says false if the clock has got into trouble meanwhile.
func (c *Stamper) Resumed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if c.state != resuming {
		return false
	}
	c.become(running)
	return true
}

// ForReport is the stamp of a result, which is recorded also while the leader holds. While it does, the smaller of what
// the clock says and what was stamped last is used: it moves the mark neither to a time that never was nor back up
// after a reset; the store dates the record by the mark. What is to come some time after a result counts from the last
// stamp and the time that has passed since, which no clock need be asked for.
func (c *Stamper) ForReport() (now, after int64, trusted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if c.state == running {
		now = c.next()
		return now, now, true
	}
	return min(c.last, c.wall.UnixMilli()), c.last + (c.mono - c.lastAt).Milliseconds(), false
}

// Holding is why there are no stamps, empty if there are.
func (c *Stamper) Holding() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	text, _ := c.why()
	return text
}

// Refused is why there are no stamps as an error, nil if there are.
func (c *Stamper) Refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if c.state == running {
		return nil
	}
	return c.refusal()
}

func (c *Stamper) refusal() error {
	text, remedy := c.why()
	return job.Errorf(job.CodeNotReady, remedy, "%s", text)
}

// why is why there are no stamps and what to do about it.
func (c *Stamper) why() (text, remedy string) {
	switch c.state {
	case jumped:
		sign := "+"
		if c.jump < 0 {
			sign = ""
		}
		return fmt.Sprintf("the leader holds: its clock jumped by %s%s; it continues once the clock has been steady "+
				"for %s",
				sign, c.jump.Round(time.Millisecond), c.steadyFor),
			"wait; if the clock jumps again, find out what sets it on that machine"
	case behindMark:
		return fmt.Sprintf("the leader holds: its clock is %s behind the committed mark",
				c.behind.Round(time.Millisecond)),
			"wait, or run `carillon cluster clock-reset` if the clock is right"
	case skewed:
		d, _ := c.skew()
		return fmt.Sprintf("the leader holds: its clock differs by %s from the majority's",
			d.Round(time.Millisecond)), "correct the clock of that machine"
	case alone:
		return "the leader holds: it does not know yet what time a majority of the nodes has",
			"start the other nodes, and make sure that they reach each other"
	case resuming:
		return "the leader is taking over", "try again in a moment"
	}
	return "", ""
}

// HoldKind is why a leader holds because of its clock.
type HoldKind string

// The kinds. They are labels of metrics.
const (
	HoldNone    HoldKind = ""
	HoldJumped  HoldKind = "clock_jumped"
	HoldBehind  HoldKind = "clock_behind"
	HoldSkewed  HoldKind = "clock_skewed"
	HoldUnknown HoldKind = "clock_unknown"
)

// HoldKinds are all of them.
func HoldKinds() []HoldKind { return []HoldKind{HoldJumped, HoldBehind, HoldSkewed, HoldUnknown} }

func (s state) kind() HoldKind {
	switch s {
	case jumped:
		return HoldJumped
	case behindMark:
		return HoldBehind
	case skewed:
		return HoldSkewed
	case alone:
		return HoldUnknown
	}
	return HoldNone
}

// State says whether the clock is trusted, and why not.
type State struct {
	Holding bool // there are no stamps, if only because of a takeover
	Kind    HoldKind
	Why     string
	Remedy  string
	For     time.Duration // how long there have been no stamps
	Skew    time.Duration // from the majority's clocks, if that is known
}

// State is the state of the clock.
func (c *Stamper) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	out := State{Holding: c.state != running, Kind: c.state.kind()}
	if out.Holding {
		out.Why, out.Remedy = c.why()
		out.For = c.mono - c.held
	}
	if c.skew != nil {
		out.Skew, _ = c.skew()
	}
	return out
}

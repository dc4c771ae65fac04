// Package scrub finds out whether the states of a group's replicas are still what was written to them. Its DESIGN.md
// says how.
package scrub

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// within is how long a pass over a state takes, if that is large; a small one is looked at every so often.
	within = 12 * time.Hour
	every  = time.Hour
	// rangeBytes is how much of the state one entry names, and more when somebody waits for it.
	rangeBytes = 4 << 20
	askedBytes = 16 << 20
	// askEvery is how often the leader looks whether the others have made their hashes, and askFor how long.
	askEvery = 200 * time.Millisecond
	askFor   = 20 * time.Second
	// again is how long a leader that could not name a range waits.
	again = 5 * time.Second
	// remembered is how many hashes a replica knows, for what is said about them later.
	remembered = 16
)

// Result is the hash that a replica made of the range that an entry names.
type Result struct {
	Index uint64 `json:"index"`
	Sum   uint64 `json:"sum"`
}

// Progress is where a pass is.
type Progress struct {
	Running bool      `json:"running"`
	Began   time.Time `json:"began,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // of the last one that came to its end
	Bytes   int64     `json:"bytes"`          // looked at in this pass, or the last one
	Of      int64     `json:"of_bytes"`       // the size of the file
	Split   string    `json:"split,omitempty"`
}

// Asked is the pass that this replica, as the leader, was asked for last, and what came of it so far.
type Asked struct {
	Number   uint64 // how often it was asked; 0: never
	Done     bool
	Differ   []string // the nodes with another hash than most; all that have one, if none has a majority
	Missing  []string // the voters that made no hash of some range: they do not answer, or are behind
	Progress Progress
}

// Options are what a replica's part stands on.
type Options struct {
	Store   *store.Store
	Self    string
	Voters  func() []string          // the nodes whose replicas vote, this one among them or not
	Others  func() map[string]Result // what the other replicas said last, if they answer
	Damaged func(error)              // has this replica take no part any more
	Pace    func(time.Duration) time.Duration
	Logger  *slog.Logger
}

// Replica is the part of one replica of a group.
type Replica struct {
	o    Options
	todo chan fsm.Scrubbed // the one that is looked at next
	wake chan struct{}     // a pass was asked for

	mu       sync.Mutex
	done     []look            // the newest last
	verdicts map[uint64]uint64 // the hash of the majority, by entries whose range was not looked at yet
	asked    bool              // a pass is to be made at once
	anew     bool              // from the beginning
	request  Asked             // without its Progress
	last     time.Time         // when the last range was named
	at       store.Cursor      // where the next range begins
	pass     Progress
	splits   int // in this pass
	closed   bool
}

// look is what came of looking at a range.
type look struct {
	Result
	from store.Cursor
	next *store.Cursor // nil: it was the last
}

// New makes the part of a replica.
func New(o Options) *Replica {
	return &Replica{o: o, todo: make(chan fsm.Scrubbed, 1), wake: make(chan struct{}, 1), verdicts: map[uint64]uint64{},
		last: time.Now()}
}

// Apply takes in what an entry says. The goroutine that applies calls it, so it waits for nothing.
func (r *Replica) Apply(s fsm.Scrubbed) {
	if s.At != 0 && !mutant.On(mutant.TrustState) {
		r.hear(s.Scrub)
	}
	if s.Data == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	r.drop() // this replica is slow, and the leader has gone on without it
	if r.closed {
		s.Data.Close()
		return
	}
	r.todo <- s
}

// drop lets go of the view that waits, if there is one.
func (r *Replica) drop() {
	select {
	case s := <-r.todo:
		s.Data.Close()
	default:
	}
}

// Close lets go of the state, which cannot be closed before. Run has ended.
func (r *Replica) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.drop()
}

// hear compares with what a majority has.
func (r *Replica) hear(c *fsm.Scrub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Split {
		r.splits++
		r.pass.Split = fmt.Sprintf("the states of the voters differ in bucket %s from key %x on, and none has a "+
			"majority", c.Bucket, c.Key)
		r.o.Logger.Error("states differ", "error", r.pass.Split)
		return
	}
	for _, l := range r.done {
		if l.Index == c.At {
			r.compare(l, c.Sum)
			return
		}
	}
	r.verdicts[c.At] = c.Sum
}

func (r *Replica) compare(l look, sum uint64) {
	if l.Sum == sum {
		return
	}
	to := "the end"
	if l.next != nil {
		to = l.next.String()
	}
	go r.o.Damaged(fmt.Errorf("the state at entry %d is another one than that of most voters, between %s and %s",
		l.Index, l.from, to))
}

// Run looks at ranges until ctx ends.
func (r *Replica) Run(ctx context.Context) {
	for {
		select {
		case s := <-r.todo:
			r.look(s)
		case <-ctx.Done():
			return
		}
	}
}

func (r *Replica) look(s fsm.Scrubbed) {
	l := look{from: store.Cursor{Bucket: s.Bucket, Key: s.Key}, Result: Result{Index: s.Index}}
	var err error
	l.Sum, l.next, err = s.Data.Sum(l.from, s.Bytes)
	s.Data.Close()
	if err != nil {
		r.o.Damaged(fmt.Errorf("the state cannot be read: %w", err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, l)
	if n := len(r.done) - remembered; n > 0 {
		r.done = r.done[n:]
	}
	r.progress(l, s.Bytes)
	if sum, known := r.verdicts[s.Index]; known {
		r.compare(l, sum)
	}
	for at := range r.verdicts {
		if at <= s.Index { // or the replica did not get to it, or came with a snapshot
			delete(r.verdicts, at)
		}
	}
}

// progress follows a pass, on every replica: the next leader goes on from there.
func (r *Replica) progress(l look, bytes int) {
	p := &r.pass
	if l.from.Bucket == "" {
		p.Running, p.Began, p.Bytes = true, time.Now(), 0
	}
	p.Of = r.o.Store.Size()
	if p.Bytes = min(p.Bytes+int64(bytes), p.Of); l.next != nil {
		r.at = *l.next
		return
	}
	p.Running, p.Ended, p.Bytes, r.at = false, time.Now(), p.Of, store.Cursor{}
	if r.splits == 0 {
		p.Split = ""
	}
	r.splits = 0
}

// Last is the newest hash that this replica made; nil: it made none.
func (r *Replica) Last() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.done); n > 0 {
		return new(r.done[n-1].Result)
	}
	return nil
}

// Progress is where the pass is.
func (r *Replica) Progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pass
	p.Running = p.Running || r.asked
	return p
}

// Start has the leader make a pass at once, from the beginning, also if one is under way.
func (r *Replica) Start() {
	r.mu.Lock()
	r.asked, r.anew = true, true
	r.request = Asked{Number: r.request.Number + 1}
	r.mu.Unlock()
	wait.Wake(r.wake)
}

// Asked is what came of the last Start.
func (r *Replica) Asked() Asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.request
	a.Differ, a.Missing, a.Progress = slices.Clone(a.Differ), slices.Clone(a.Missing), r.pass
	if r.anew {
		a.Progress.Bytes = 0
	}
	return a
}

// note adds what came of a range of the pass that was asked for.
func (r *Replica) note(number uint64, f *findings, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.request.Number != number || r.anew {
		return // somebody asked again meanwhile
	}
	add := func(to, nodes []string) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(to, nodes...))))
	}
	r.request.Differ, r.request.Missing = add(r.request.Differ, f.differ), add(r.request.Missing, f.missing)
	if done {
		r.asked, r.request.Done = false, true
	}
}

// due is how long to wait before the next range is named, and how large it is.
func (r *Replica) due() (time.Duration, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked {
		return 0, askedBytes
	}
	ranges := r.o.Store.Size()/rangeBytes + 1
	return time.Until(r.last.Add(r.o.Pace(min(every, within/time.Duration(ranges))))), rangeBytes
}

// Lead names one range after the other for as long as this node leads.
func (r *Replica) Lead(e *forward.Epoch) func(context.Context) {
	return func(ctx context.Context) {
		var said fsm.Scrub // what came of the range before
		r.mu.Lock()
		r.anew = r.asked // another node may have led since, and gone on with the pass
		r.mu.Unlock()
		for ctx.Err() == nil {
			if pause, bytes := r.due(); pause > 0 {
				wait.Within(ctx, r.wake, pause)
			} else if err := r.step(ctx, e, bytes, &said); err != nil && ctx.Err() == nil {
				r.o.Logger.Warn("state not scrubbed; trying again", "error", err)
				wait.For(ctx, r.o.Pace(again))
			}
		}
	}
}

// step names a range and finds out what a majority makes of it.
func (r *Replica) step(ctx context.Context, e *forward.Epoch, bytes int, said *fsm.Scrub) error {
	r.mu.Lock()
	if r.anew {
		r.anew, r.at = false, store.Cursor{}
	}
	cmd, asked, number := *said, r.asked, r.request.Number
	cmd.Bucket, cmd.Key, cmd.Bytes = r.at.Bucket, r.at.Key, bytes
	r.mu.Unlock()
	if cmd.Split { // that says where, and has been said
		cmd.At, cmd.Split = 0, false
	}
	index, err := r.propose(e, &cmd)
	if err != nil {
		return err
	}
	*said = fsm.Scrub{}
	f := r.collect(ctx, index, said)
	if f.mine == nil {
		return fmt.Errorf("this node has not looked at the range that entry %d names", index)
	}
	last := f.mine.next == nil
	if said.At != 0 && (len(f.differ) > 0 || last) { // the others are to know now
		if said.Split {
			said.Bucket, said.Key = cmd.Bucket, cmd.Key
		}
		_, err = r.propose(e, said)
		*said = fsm.Scrub{}
	}
	if asked && err == nil {
		r.note(number, f, last)
	}
	return err
}

func (r *Replica) propose(e *forward.Epoch, cmd *fsm.Scrub) (index uint64, err error) {
	now, err := e.Scheduler.Stamp()
	if err != nil {
		return 0, err
	}
	cmd.Head = e.Head(now)
	reply, err := e.Proposer.Propose(cmd).Wait()
	if err != nil {
		return 0, err
	}
	return reply.Items[0].Fence, nil
}

// findings are what came of a range.
type findings struct {
	mine            *look // nil: this node has not looked at it
	differ, missing []string
}

// collect waits until the voters that answer have made their hashes, and says what the majority's is.
func (r *Replica) collect(ctx context.Context, index uint64, said *fsm.Scrub) *findings {
	until := time.Now().Add(r.o.Pace(askFor))
	for {
		f := &findings{mine: r.lookAt(index)}
		others := r.o.Others()
		if others[r.o.Self] = (Result{}); f.mine != nil {
			others[r.o.Self] = f.mine.Result
		}
		sums, awaited, voters := map[uint64]int{}, 0, r.o.Voters()
		for _, id := range voters {
			if res, answers := others[id]; answers && res.Index == index {
				sums[res.Sum]++
			} else if f.missing = append(f.missing, id); answers {
				awaited++
			}
		}
		if late := ctx.Err() != nil || !time.Now().Before(until); awaited > 0 && !late {
			wait.For(ctx, r.o.Pace(askEvery))
			continue
		}
		for sum, n := range sums {
			if n*2 > len(voters) {
				said.At, said.Sum = index, sum
			}
		}
		if said.At == 0 && len(sums) > 1 {
			said.At, said.Split = index, true
		}
		for id, res := range others { // those without a vote as well
			if said.At != 0 && res.Index == index && (said.Split || res.Sum != said.Sum) {
				f.differ = append(f.differ, id)
			}
		}
		return f
	}
}

func (r *Replica) lookAt(index uint64) *look {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.done {
		if l.Index == index {
			return &l
		}
	}
	return nil
}

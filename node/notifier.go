package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// notifySlots is how many notifications are sent at once, notifyPerReceiver how many to one receiver.
	notifySlots       = 16
	notifyPerReceiver = 4
	// notifyFirst is the delay after the first failed try; it doubles up to notifyCap.
	notifyFirst = 5 * time.Second
	notifyCap   = 15 * time.Minute
	// notifyMaxAge is when a notification that could not be sent is given up: it is no news any more.
	notifyMaxAge = 24 * time.Hour
	// notifyLook is how often the outbox is looked through when nothing says that it changed, and notifyPage how much of it one view reads.
	notifyLook = 5 * time.Second
	notifyPage = 256
)

// notifier sends what is in the outbox, for one leadership. It claims in the log first and sends then, so that no two leaders send the same;
// what a leader before it had claimed may have been sent, and is recorded as unknown instead of being sent again.
type notifier struct {
	g      *group
	e      *forward.Epoch
	poster *notify.Poster
	wake   chan struct{}
	ended  chan *delivery

	// Of the loop.
	busy      map[job.ID]bool // one at a time for each job: its recovery must not overtake its failure
	receivers map[string]*receiver
	unsettled []*delivery        // sent or not, and the log does not know yet
	doubtful  map[noticeRef]bool // claims that may or may not be in the log: never sent
	noRoom    bool               // the outbox was full when last looked at
	next      time.Duration      // how long until something is due
	looked    int                // jobs that were looked at since the last rest
}

type noticeRef struct {
	job job.ID
	seq uint64
}

// receiver is what the leader knows of a place that notifications go to. One that does not answer is asked by one try at a time, ever less
// often, whoever has something to tell it.
type receiver struct {
	flying   int
	failures int
	after    time.Time
}

func (r *receiver) free(now time.Time) bool {
	limit := notifyPerReceiver
	if r.failures > 0 {
		limit = 1
	}
	return r.flying < limit && !now.Before(r.after)
}

// delivery is one claimed try.
type delivery struct {
	n       store.Notice
	to      job.Notify
	msg     notify.Message
	want    store.Channels
	try     store.Channels
	giveUp  bool
	results map[store.Channels]notify.Result
	where   map[store.Channels]string
	orphan  bool // of another leadership: it may have been sent
	unsent  bool // claimed by this one, and never sent
}

func newNotifier(g *group, e *forward.Epoch) *notifier {
	return &notifier{g: g, e: e, poster: notify.NewPoster(&g.cfg.Notify), wake: make(chan struct{}, 1), ended: make(chan *delivery, notifySlots),
		busy: map[job.ID]bool{}, receivers: map[string]*receiver{}, doubtful: map[noticeRef]bool{}}
}

func (f *notifier) first() time.Duration {
	if d := f.g.cfg.hooks.notifyFirst; d > 0 {
		return d
	}
	return notifyFirst
}

// backoff is the delay after n failures.
func (f *notifier) backoff(n int) time.Duration {
	return min(f.first()<<min(max(n-1, 0), 20), notifyCap)
}

// run works until the leadership ends. What is being sent then is given up: this leadership cannot record its end any more.
func (f *notifier) run(ctx context.Context) {
	defer f.g.store.Listen(func(c *store.Changes) {
		if c.Outbox || c.Reset {
			kick(f.wake)
		}
	})()
	flying := 0
	defer func() {
		for ; flying > 0; flying-- {
			<-f.ended
		}
	}()
	for ctx.Err() == nil {
		f.next, f.looked = notifyLook, 0
		if f.g.store.NoticeCount() == 0 && len(f.unsettled) == 0 {
			clear(f.doubtful)
			f.next = 0 // until something changes
		} else if now, err := f.e.Scheduler.Stamp(); err == nil { // one that takes over, or doubts its clock, waits
			f.settle(now)
			flying += f.sweep(ctx, now, notifySlots-flying)
		} else {
			f.next = 100 * time.Millisecond
		}
		// Looking through a full outbox takes a while: less often then.
		rest := time.Duration(f.looked) * 50 * time.Microsecond
		if rest > 10*time.Millisecond && !pause(ctx, rest) {
			return
		}
		var due <-chan time.Time
		if f.next > 0 {
			due = time.After(f.next)
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-f.wake:
		case d := <-f.ended:
			flying--
			f.landed(d)
			for more := true; more; { // one entry in the log for all of them
				select {
				case d := <-f.ended:
					flying--
					f.landed(d)
				default:
					more = false
				}
			}
		}
	}
}

// propose puts a command into the log and waits for its outcomes.
func (f *notifier) propose(cmd any) (*fsm.Reply, error) {
	propose := func(cmd any) (*fsm.Reply, error) { return f.e.Proposer.Propose(cmd).Wait() }
	if hook := f.g.cfg.hooks.notifyPropose; hook != nil {
		return hook(cmd, propose)
	}
	return propose(cmd)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sweep goes through the outbox for what can be sent now, and starts it. It says how many it started.
func (f *notifier) sweep(ctx context.Context, now int64, slots int) (started int) {
	var after job.ID
	for end := false; !end && ctx.Err() == nil && started < slots; {
		var found []*delivery
		err := f.g.store.View(func(v *store.View) (err error) {
			found, after, end, err = f.look(v, now, after, slots-started)
			return err
		})
		if err != nil {
			if !errors.Is(err, store.ErrClosed) {
				f.g.log.Error("the outbox cannot be read", "error", err)
			}
			return started
		}
		started += f.launch(ctx, now, found)
	}
	full := f.g.store.NoticeCount() >= fsm.MaxNotices
	if full && !f.noRoom {
		f.g.log.Warn("too many notifications wait to be sent; changes of other jobs are told at their next run", "waiting", fsm.MaxNotices)
	}
	f.noRoom = full
	return started
}

// look reads a page of the outbox. Of each job only the oldest counts.
func (f *notifier) look(v *store.View, now int64, after job.ID, room int) (found []*delivery, last job.ID, end bool, err error) {
	rows, flying := 0, map[string]int{}
	last, end = after, true
	if v.Info.Hold.On { // the cluster that the backup was taken from may be sending them
		return nil, last, end, nil
	}
	var seen job.ID
	err = v.NoticesAfter(after, func(n store.Notice) bool {
		if n.Job == seen {
			return true
		}
		if rows++; rows > notifyPage || len(found) >= room {
			end = false
			return false
		}
		seen, last = n.Job, n.Job
		f.looked++
		if d := f.consider(v, now, n, flying); d != nil {
			found = append(found, d)
		}
		return true
	})
	return found, last, end, err
}

// consider makes a delivery of a notification if something is to be done with it now.
func (f *notifier) consider(v *store.View, now int64, n store.Notice, flying map[string]int) *delivery {
	if f.busy[n.Job] {
		return nil
	}
	if n.Trying != 0 {
		if f.doubtful[noticeRef{n.Job, n.Seq}] {
			return &delivery{n: n, unsent: true}
		}
		return &delivery{n: n, orphan: true}
	}
	if n.NextTry > now {
		f.later(time.Duration(n.NextTry-now) * time.Millisecond)
		return nil
	}
	def, ok, err := v.Definition(n.Job)
	if err != nil || !ok || def.Spec.Notify == nil {
		return nil // apply drops what is about such a job
	}
	d := &delivery{n: n, to: *def.Spec.Notify, where: map[store.Channels]string{}}
	d.msg = message(&n, def.Spec.Name, v.Info.ClusterID)
	if d.to.Webhook != "" {
		_, d.where[store.ChannelWebhook], _ = f.g.cfg.Notify.URL(&d.to)
	}
	if len(d.to.Email) > 0 {
		d.where[store.ChannelEmail] = "mail"
	}
	// One try at least: a leader that held with a clock far behind has dated it back.
	d.giveUp = n.Attempts > 0 && now-n.At > notifyMaxAge.Milliseconds()
	clock := time.Now()
	for ch, where := range d.where {
		d.want |= ch
		if n.Settled()&ch != 0 {
			continue
		}
		r := f.receiver(where)
		if !d.giveUp && (!r.free(clock) || r.flying+flying[where] >= notifyPerReceiver || r.failures > 0 && flying[where] > 0) {
			if wait := r.after.Sub(clock); wait > 0 { // otherwise the end of one that is under way makes room
				f.later(wait)
			}
			continue
		}
		d.try |= ch
		flying[where]++
	}
	if d.try == 0 && d.want&^n.Settled() != 0 {
		return nil
	}
	return d // with nothing to try: an edit took that away, and it is done with
}

func (f *notifier) later(d time.Duration) { f.next = min(f.next, d) }

func (f *notifier) receiver(where string) *receiver {
	r := f.receivers[where]
	if r == nil {
		if len(f.receivers) > 1000 { // what is remembered of them only spares tries
			for k, r := range f.receivers {
				if r.flying == 0 {
					delete(f.receivers, k)
				}
			}
		}
		r = &receiver{}
		f.receivers[where] = r
	}
	return r
}

func message(n *store.Notice, name, cluster string) notify.Message {
	m := notify.Message{Kind: noticeKind(n), JobID: n.Job, Name: name, Status: noticeStatus(n), Reason: n.Reason.String(), Error: n.Error, At: job.Instant(n.At), Cluster: cluster}
	if k, ok := n.Run(); ok {
		m.RunID, m.ScheduledAt = k.String(), job.Instant(k.At)
	}
	m.Key = fmt.Sprintf("%s:%s:%d:%d", n.Job, m.Kind, n.Seq, n.At)
	return m
}

func noticeKind(n *store.Notice) string {
	if n.Kind == store.NotifyRecovery {
		return job.NotifyRecovery
	}
	return job.NotifyFailure
}

func noticeStatus(n *store.Notice) string {
	if n.Status == job.RunNone {
		return string(job.StatusQuarantined)
	}
	return n.Status.String()
}

// launch claims deliveries and sends those that the log gave to this leader.
func (f *notifier) launch(ctx context.Context, now int64, found []*delivery) (started int) {
	cmd := &fsm.ClaimNotices{Head: fsm.Head{Now: now, Term: f.e.Term}, Node: f.g.cfg.NodeID}
	var claims []*delivery
	for _, d := range found {
		if d.orphan || d.unsent {
			f.unsettled = append(f.unsettled, d)
			f.busy[d.n.Job] = true
			continue
		}
		claims = append(claims, d)
		cmd.Jobs, cmd.Seqs = append(cmd.Jobs, uint64(d.n.Job)), append(cmd.Seqs, d.n.Seq)
		cmd.Want, cmd.Try = append(cmd.Want, byte(d.want)), append(cmd.Try, byte(d.try))
	}
	if len(claims) > 0 {
		reply, err := f.propose(cmd)
		for i, d := range claims {
			switch {
			case err != nil && !errors.Is(err, scheduler.ErrNotApplied):
				f.doubtful[noticeRef{d.n.Job, d.n.Seq}] = true
			case err == nil && reply.Items[i].Code == fsm.CodeOK:
				if d.try == 0 {
					continue
				}
				d.n.Attempts = uint32(reply.Items[i].Count)
				d.n.Trying = d.try
				f.busy[d.n.Job] = true
				if d.giveUp {
					f.unsettled = append(f.unsettled, d)
					continue
				}
				for ch, where := range d.where {
					if d.try&ch != 0 {
						f.receiver(where).flying++
					}
				}
				started++
				go f.send(ctx, d)
			}
		}
		if err != nil {
			f.next = min(f.next, time.Second)
			return started
		}
	}
	f.settle(now)
	return started
}

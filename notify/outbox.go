package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxSending is how many notifications are sent at once, maxPerReceiver how many to one receiver.
	maxSending     = 16
	maxPerReceiver = 4
	// firstRetry is the delay after the first failed try; it doubles up to maxRetry.
	firstRetry = 5 * time.Second
	maxRetry   = 15 * time.Minute
	// maxAge is when a notification that could not be sent is given up: it is no news any more.
	maxAge = 24 * time.Hour
	// sweepEvery is how often the outbox is looked through when nothing says that it changed, and pageSize how much of
	// it one view reads.
	sweepEvery = 5 * time.Second
	pageSize   = 256
)

// Options are what an outbox needs of the leadership that it sends for.
type Options struct {
	Store    *store.Store
	Settings *Settings
	NodeID   string
	Term     uint64
	Logger   *slog.Logger
	// Stamp is the time to put into commands. It fails while this leader takes over, or doubts its clock.
	Stamp func() (int64, error)
	// Propose puts a command into the log and waits for its outcomes. Only scheduler.ErrNotApplied says that it is not
	// in the log.
	Propose func(cmd fsm.Command) (*fsm.Reply, error)
	// Recorded is told of every try whose outcome was recorded: sent, retried, unknown or failed.
	Recorded func(outcome string)

	Vault Vault // of the secrets that webhooks refer to; nil: there are none

	FirstRetry time.Duration         // the delay after the first failed try; 0: five seconds
	BeforeSend func(context.Context) // called between a claim and the sending, by tests; nil: nothing
}

// Outbox sends the notifications of one leadership. It claims in the log first and sends then, so that no two leaders
// send the same; what an earlier leader had claimed may have been sent, and is recorded as unknown instead of being
// sent again.
type Outbox struct {
	Options
	poster *Poster
	wake   chan struct{}
	ended  chan *delivery

	// Of the loop.
	busy      map[job.ID]bool // one at a time for each job: its recovery must not overtake its failure
	receivers map[string]*receiver
	unsettled []*delivery        // ended, and not yet recorded in the log
	doubtful  map[noticeRef]bool // claims whose outcome is unknown: never sent
	noRoom    bool               // the outbox was full when last looked at
	next      time.Duration      // how long until something is due
	looked    int                // jobs that were looked at since the last rest
}

type noticeRef struct {
	job job.ID
	seq uint64
}

// receiver is what the leader knows of a place that notifications go to. One that does not answer gets one try at a
// time, ever less often, no matter from which job.
type receiver struct {
	flying   int
	failures int
	after    time.Time
}

func (r *receiver) free(now time.Time) bool {
	limit := maxPerReceiver
	if r.failures > 0 {
		limit = 1
	}
	return r.flying < limit && !now.Before(r.after)
}

// delivery is one claimed try.
type delivery struct {
	n       store.Notice
	to      job.Notify
	msg     Message
	want    store.Channels
	try     store.Channels
	giveUp  bool
	results map[store.Channels]Result
	where   map[store.Channels]string
	orphan  bool // of another leadership: it may have been sent
	unsent  bool // claimed by this one, and never sent
}

// NewOutbox makes the outbox of one leadership.
func NewOutbox(o Options) *Outbox {
	o.FirstRetry = cmp.Or(o.FirstRetry, firstRetry)
	return &Outbox{
		Options: o, poster: NewPoster(o.Settings), wake: make(chan struct{}, 1),
		ended: make(chan *delivery, maxSending),
		busy:  map[job.ID]bool{}, receivers: map[string]*receiver{}, doubtful: map[noticeRef]bool{},
	}
}

// backoff is the delay after n failures.
func (o *Outbox) backoff(n int) time.Duration {
	return min(o.FirstRetry<<min(max(n-1, 0), 20), maxRetry)
}

// Run works until the leadership ends. What is being sent then is given up: this leadership cannot record its end any
// more.
func (o *Outbox) Run(ctx context.Context) {
	defer o.Store.Listen(func(c *store.Changes) {
		if c.Outbox || c.Reset {
			select {
			case o.wake <- struct{}{}:
			default:
			}
		}
	})()
	flying := 0
	defer func() {
		for ; flying > 0; flying-- {
			<-o.ended
		}
	}()
	for ctx.Err() == nil {
		o.next, o.looked = sweepEvery, 0
		if o.Store.NoticeCount() == 0 && len(o.unsettled) == 0 {
			clear(o.doubtful)
			o.next = 0 // until something changes
		} else if now, err := o.Stamp(); err == nil { // one that takes over, or doubts its clock, waits
			o.settle(now)
			flying += o.sweep(ctx, now, maxSending-flying)
		} else {
			o.next = 100 * time.Millisecond
		}
		// Looking through a full outbox takes a while: less often then.
		rest := time.Duration(o.looked) * 50 * time.Microsecond
		if rest > 10*time.Millisecond {
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
		}
		var due <-chan time.Time
		if o.next > 0 {
			due = time.After(o.next)
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-o.wake:
		case d := <-o.ended:
			flying--
			o.landed(d)
			for more := true; more; { // one entry in the log for all of them
				select {
				case d := <-o.ended:
					flying--
					o.landed(d)
				default:
					more = false
				}
			}
		}
	}
}

// sweep goes through the outbox for what can be sent now, and starts it. It says how many it started.
func (o *Outbox) sweep(ctx context.Context, now int64, slots int) (started int) {
	var after job.ID
	for end := false; !end && ctx.Err() == nil && started < slots; {
		var found []*delivery
		err := o.Store.View(func(v *store.View) (err error) {
			found, after, end, err = o.look(v, now, after, slots-started)
			return err
		})
		if err != nil {
			if !errors.Is(err, store.ErrClosed) {
				o.Logger.Error("outbox not readable", "error", err)
			}
			return started
		}
		started += o.launch(ctx, now, found)
	}
	full := o.Store.NoticeCount() >= fsm.MaxNotices
	if full && !o.noRoom {
		o.Logger.Warn("outbox full; notifications about other jobs follow at their next run", "waiting", fsm.MaxNotices)
	}
	o.noRoom = full
	return started
}

// look reads a page of the outbox. Of each job only the oldest counts.
func (o *Outbox) look(v *store.View, now int64, after job.ID, room int) (found []*delivery, last job.ID, end bool,
	err error) {
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
		if rows++; rows > pageSize || len(found) >= room {
			end = false
			return false
		}
		seen, last = n.Job, n.Job
		o.looked++
		if d := o.consider(v, now, n, flying); d != nil {
			found = append(found, d)
		}
		return true
	})
	return found, last, end, err
}

// consider makes a delivery of a notification if something is to be done with it now.
func (o *Outbox) consider(v *store.View, now int64, n store.Notice, flying map[string]int) *delivery {
	if o.busy[n.Job] {
		return nil
	}
	if n.Trying != 0 {
		if o.doubtful[noticeRef{n.Job, n.Seq}] {
			return &delivery{n: n, unsent: true}
		}
		return &delivery{n: n, orphan: true}
	}
	if n.NextTry > now {
		o.later(time.Duration(n.NextTry-now) * time.Millisecond)
		return nil
	}
	def, ok, err := v.Definition(n.Job)
	if err != nil || !ok || def.Spec.Notify == nil {
		return nil // apply drops what is about such a job
	}
	return o.prepare(now, n, &def.Spec, v.Info.ClusterID, flying)
}

// prepare decides what of a notification is tried now; nil: nothing.
func (o *Outbox) prepare(now int64, n store.Notice, spec *job.Spec, cluster string, flying map[string]int) *delivery {
	d := &delivery{n: n, to: *spec.Notify, where: map[store.Channels]string{}}
	d.msg = message(&n, spec, cluster)
	if d.to.Webhook != "" {
		_, d.where[store.ChannelWebhook], _ = o.Settings.URL(d.msg.Namespace, &d.to)
	}
	if len(d.to.Email) > 0 {
		d.where[store.ChannelEmail] = "mail"
	}
	// One try at least: a leader that held with a clock far behind has dated it back.
	d.giveUp = n.Attempts > 0 && now-n.At > maxAge.Milliseconds()
	clock := time.Now()
	for ch, where := range d.where {
		d.want |= ch
		if n.Settled()&ch != 0 {
			continue
		}
		r := o.receiver(where)
		if !d.giveUp && (!r.free(clock) || r.flying+flying[where] >= maxPerReceiver || r.failures > 0 &&
			flying[where] > 0) {
			if wait := r.after.Sub(clock); wait > 0 { // otherwise the end of one that is under way makes room
				o.later(wait)
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

func (o *Outbox) later(d time.Duration) { o.next = min(o.next, d) }

func (o *Outbox) receiver(where string) *receiver {
	r := o.receivers[where]
	if r == nil {
		if len(o.receivers) > 1000 { // what is remembered of them only spares tries
			for k, r := range o.receivers {
				if r.flying == 0 {
					delete(o.receivers, k)
				}
			}
		}
		r = &receiver{}
		o.receivers[where] = r
	}
	return r
}

// launch claims deliveries and sends those that the log gave to this leader.
func (o *Outbox) launch(ctx context.Context, now int64, found []*delivery) (started int) {
	cmd := &fsm.ClaimNotices{Head: fsm.Head{Now: now, Term: o.Term}, Node: o.NodeID}
	var claims []*delivery
	for _, d := range found {
		if d.orphan || d.unsent {
			o.unsettled = append(o.unsettled, d)
			o.busy[d.n.Job] = true
			continue
		}
		claims = append(claims, d)
		cmd.Jobs, cmd.Seqs = append(cmd.Jobs, uint64(d.n.Job)), append(cmd.Seqs, d.n.Seq)
		cmd.Want, cmd.Try = append(cmd.Want, byte(d.want)), append(cmd.Try, byte(d.try))
	}
	if len(claims) > 0 {
		reply, err := o.Propose(cmd)
		for i, d := range claims {
			switch {
			case err != nil && !errors.Is(err, scheduler.ErrNotApplied):
				o.doubtful[noticeRef{d.n.Job, d.n.Seq}] = true
			case err == nil && reply.Items[i].Code == fsm.CodeOK:
				if d.try == 0 {
					continue
				}
				d.n.Attempts = uint32(reply.Items[i].Count)
				d.n.Trying = d.try
				o.busy[d.n.Job] = true
				if d.giveUp {
					o.unsettled = append(o.unsettled, d)
					continue
				}
				for ch, where := range d.where {
					if d.try&ch != 0 {
						o.receiver(where).flying++
					}
				}
				started++
				go o.send(ctx, d)
			}
		}
		if err != nil {
			o.next = min(o.next, time.Second)
			return started
		}
	}
	o.settle(now)
	return started
}

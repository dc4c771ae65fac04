package insight

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// lineLook bounds how many due entries are looked at for the place of a job in the line.
const lineLook = 10_000

// Why implements api.Backend: what could keep a job from running, in the order in which it would. Each check is made by
// itself, so that one who mends the first one knows the next.
func (b *Service) Why(ctx context.Context, ref string, rd api.Read) (wire.Why, error) {
	var out wire.Why
	err := b.read(ctx, rd, func(r *view.Reader) error {
		id, err := r.Find(ref, rd.Space)
		if err != nil {
			return err
		}
		h, err := r.Held(id)
		if err != nil {
			return err
		}
		w := &whyNot{r: r, h: &h, now: b.now(), leads: b.o.Source.Leads()}
		w.open, w.has = r.DueOpenRun(&h)
		out = wire.Why{JobID: id, At: job.Instant(w.now)}
		if out.Checks, err = w.checks(); err != nil {
			return err
		}
		out.Verdict = w.verdict(out.Checks)
		return nil
	})
	return out, err
}

// whyNot makes the checks of one job.
type whyNot struct {
	r     *view.Reader
	h     *view.Held
	now   int64
	leads *scheduler.Scheduler // nil: this node does not lead
	open  store.DueKey         // of an open run that is due and not claimed: it comes before what the schedule brings
	has   bool                 // there is one
}

func (w *whyNot) checks() (out []wire.Check, err error) {
	line, err := w.line()
	if err != nil {
		return nil, err
	}
	blackout, err := w.blackout()
	if err != nil {
		return nil, err
	}
	out = []wire.Check{w.hold(), w.clock(), w.status(), w.quarantine(), blackout, w.due(), w.overlap(), w.concurrency(),
		w.queue()}
	return append(append(out, w.workers()...), line), nil
}

func fine(check, text string) wire.Check {
	return wire.Check{Check: check, State: wire.CheckOK, Text: text}
}

func blocked(check, text, remedy string) wire.Check {
	return wire.Check{Check: check, State: wire.CheckBlocked, Text: text, Remedy: remedy}
}

func unknown(check string) wire.Check {
	return wire.Check{Check: check, State: wire.CheckUnknown, Text: "only the leader knows",
		Remedy: "ask without stale=true"}
}

// moot is a check that there is nothing to make it on for, as the one before it says.
func moot(check string) wire.Check {
	return wire.Check{Check: check, State: wire.CheckUnknown, Text: "there is no such worker"}
}

func (w *whyNot) hold() wire.Check {
	if hold := w.r.Info.Hold; hold.On {
		c := blocked("hold", fsm.TextHold, view.HoldRemedy)
		c.Since = job.Instant(hold.Since)
		return c
	}
	return fine("hold", "the cluster is not on hold")
}

func (w *whyNot) clock() wire.Check {
	if w.leads == nil {
		return unknown("clock")
	}
	if _, err := w.leads.Stamp(); err != nil {
		return blocked("clock", err.Error(), "GET /api/v1/status names the clocks that differ")
	}
	return fine("clock", "the leader trusts its clock")
}

func (w *whyNot) status() wire.Check {
	s := &w.h.State
	switch {
	case s.Paused && w.has:
		return fine("status", "the job is paused, but runs started by hand still run")
	case s.Paused:
		return blocked("status", "the job is paused", "POST /api/v1/jobs/"+w.h.ID.String()+":resume")
	case s.Manual:
		return fine("status", "the job runs only by hand")
	case w.h.Place.Parked && !s.Quarantined:
		if s.Active > 0 || s.Waiting > 0 {
			return fine("status", "its last run is open; nothing follows")
		}
		return blocked("status", "the job is "+string(w.h.Status())+": nothing follows",
			"run it by hand, or change its schedule, end_at or max_runs")
	}
	return fine("status", "the job is scheduled")
}

func (w *whyNot) quarantine() wire.Check {
	if w.h.State.Quarantined {
		return blocked("quarantine", w.r.Note(w.h.ID), "fix what it says, then resume the job")
	}
	return fine("quarantine", "the job can be scheduled")
}

func (w *whyNot) blackout() (wire.Check, error) {
	spec := &w.h.Def.Spec
	if len(spec.Calendars) == 0 {
		return fine("blackout", "the job has no calendars"), nil
	}
	if w.has {
		return fine("blackout", "calendars forbid occurrences, but not a run that is open"), nil
	}
	at := w.h.Due().At
	for _, name := range spec.Calendars {
		all, err := w.r.Blackouts(spec.Namespace, []string{name})
		if err != nil {
			return wire.Check{}, err
		}
		if at != 0 && view.Forbids(all, time.UnixMilli(at)) {
			return blocked("blackout", fmt.Sprintf("the calendar %q forbids %s", name, job.Instant(at)),
				"wait, or change the calendar or the job's calendars"), nil
		}
	}
	return fine("blackout", "no calendar forbids the next occurrence"), nil
}

func (w *whyNot) due() wire.Check {
	due := w.h.Due()
	switch {
	case w.has:
		k := job.RunKey{Job: w.open.Job, At: w.open.At, Origin: w.open.Origin}
		c := fine("due", "the run "+k.String()+" ("+k.Origin.String()+") is due")
		c.Since = job.Instant(w.open.Ready)
		return c
	case due.At == 0 && w.h.State.Waiting+w.h.State.Active > 0:
		return fine("due", "a run is open")
	case due.At == 0:
		return blocked("due", "there is no next occurrence", "POST /api/v1/jobs/"+w.h.ID.String()+":run runs it now")
	case due.Ready > w.now:
		return blocked("due", "the next occurrence is due at "+job.Instant(due.Ready).String(), "")
	}
	c := fine("due", "the occurrence of "+job.Instant(due.At).String()+" is due")
	c.Since = job.Instant(due.Ready)
	return c
}

func (w *whyNot) overlap() wire.Check {
	s, policy := &w.h.State, w.h.Def.Spec.Overlap
	switch {
	case s.Overlap == store.OverlapAllow:
		return fine("overlap", "runs of the job may overlap")
	case s.Active == 0:
		return fine("overlap", "no run of the job is open")
	case w.has:
		return fine("overlap", "the open run is the one that waits")
	}
	for _, ref := range w.r.Open(w.h.ID) {
		if ref.Serial && !ref.Held && ref.Status != job.RunWaiting {
			k := job.RunKey{Job: w.h.ID, At: ref.At, Origin: ref.Origin}
			return blocked("overlap", "waiting: backfill: "+k.String()+" catches up, and what is due waits for it",
				"wait for it, or cancel it with POST /api/v1/runs/"+k.String()+":cancel")
		}
	}
	remedy := "wait for the open run, or cancel it"
	if s.Overlap == store.OverlapSkip {
		remedy += "; with overlap queue or allow, occurrences that become due meanwhile are not skipped"
	}
	return blocked("overlap", fmt.Sprintf("%d open, and overlap is %s", s.Active, policy), remedy)
}

func (w *whyNot) concurrency() wire.Check {
	s := &w.h.State
	switch {
	case s.Overlap != store.OverlapAllow || s.Concurrency == 0:
		return fine("concurrency", "the job sets no limit")
	case s.Active < uint32(s.Concurrency), w.has: // one that is open is counted, and need not wait for itself
		return fine("concurrency", fmt.Sprintf("%d of %d runs are open", s.Active, s.Concurrency))
	}
	return blocked("concurrency", "concurrency "+strconv.Itoa(int(s.Concurrency))+" is reached",
		"wait for a run to end, or raise concurrency")
}

func (w *whyNot) queue() wire.Check {
	c := job.ParseClass(w.h.Def.Spec.Class())
	key, queued := c.QueueKey()
	if !queued {
		return fine("queue", "the job uses no queue")
	}
	q := w.r.Queue(key)
	switch {
	case q.Paused:
		return blocked("queue", "queue "+key.String()+" is paused", "POST /api/v1/queues/"+key.Name+":resume")
	case !q.Room():
		text := fmt.Sprintf("queue %s is at its limit (%d of %d running)", key, q.Claimed, q.Concurrency)
		return blocked("queue", text,
			"wait, or raise the concurrency of the queue")
	}
	return fine("queue", "queue "+key.String()+" has room")
}

// workers are the checks that only the leader can make: is there a worker of the type, with the tags, with a free slot.
func (w *whyNot) workers() []wire.Check {
	if w.leads == nil {
		return []wire.Check{unknown("type"), unknown("tags"), unknown("slots")}
	}
	spec := w.h.Def.Spec
	class := spec.Class()
	spec.Workers = nil
	untagged := spec.Class()
	if why := w.leads.NoWorker(untagged); why != "" {
		return []wire.Check{blocked("type", why, "start a worker that takes such runs"), moot("tags"), moot("slots")}
	}
	out := []wire.Check{fine("type", "a worker takes runs of type "+string(spec.Type))}
	if why := w.leads.NoWorker(class); why != "" {
		return append(out, blocked("tags", why, "start a worker with these tags, or change the job's workers"),
			moot("slots"))
	}
	out = append(out, fine("tags", "a worker has the tags that the job wants"))
	if why := w.leads.NoSlot(class); why != "" {
		return append(out, blocked("slots", why, "wait, give workers more slots, or start another"))
	}
	return append(out, fine("slots", "a worker has a free slot"))
}

// line counts what is due before the job: in the lanes before its own, and earlier in that. It counts runs of its own
// class only, which are what it competes with.
func (w *whyNot) line() (wire.Check, error) {
	h := w.h
	own := w.open
	if !w.has {
		if h.Place.Parked || h.Due().Ready > w.now {
			return fine("line", "nothing of the job is due"), nil
		}
		own = h.Place.Due(h.ID)
	}
	ahead, looked := 0, 0
	for lane := range own.Lane + 1 {
		err := w.r.ScanDue(store.DueKey{Lane: lane}, min(w.now, own.Ready), func(e store.DueEntry) bool {
			if looked++; looked > lineLook || lane == own.Lane && e.DueKey == own {
				return false
			}
			if e.Kind != store.KindCleanup && e.Class == h.State.Class {
				ahead++
			}
			return true
		})
		if err != nil {
			return wire.Check{}, err
		}
	}
	text := strconv.Itoa(ahead) + " runs of its kind are ahead of it"
	if looked > lineLook {
		text = "at least " + text
	}
	if ahead == 0 && looked <= lineLook {
		return fine("line", "it is the next one of its kind"), nil
	}
	return blocked("line", text, "wait, give it a higher priority, or add slots"), nil
}

// passing says that what a check found now says nothing of a later time.
func (w *whyNot) passing(c wire.Check) bool {
	return (c.Check == "slots" || c.Check == "line") && !w.has && w.h.Due().Ready > w.now
}

// verdict is the checks in one sentence: the first that blocks, unless all that is missing is the time.
func (w *whyNot) verdict(checks []wire.Check) string {
	first := -1
	for i := range checks {
		if checks[i].State != wire.CheckBlocked || w.passing(checks[i]) {
			continue
		}
		if checks[i].Check == "due" {
			if at := w.r.NextRun(w.h); at != 0 && first < 0 && !w.anyBlocked(checks[i+1:]) {
				return "runs at " + job.Instant(at).String()
			}
			if first < 0 {
				first = i
			}
			continue
		}
		if first < 0 || checks[first].Check == "due" {
			first = i
		}
		break
	}
	switch {
	case first >= 0 && checks[first].Check == "due":
		return checks[first].Text
	case first >= 0:
		return "waits: " + checks[first].Text
	case w.h.State.Active > 0 && w.h.Place.Parked:
		return "its last run is open"
	case w.leads == nil:
		return "nothing that this node knows of is in its way"
	}
	return "is about to run"
}

func (w *whyNot) anyBlocked(checks []wire.Check) bool {
	for i := range checks {
		if checks[i].State == wire.CheckBlocked && !w.passing(checks[i]) {
			return true
		}
	}
	return false
}

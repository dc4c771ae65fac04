package proof

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// wholeLog keeps every entry, so that the log can be read at the end.
var wholeLog = []string{"--snapshot-threshold", "10000000"}

// ways are how a leader can be cut off from the others.
var ways = []struct {
	name        string
	sends, gets bool // what is lost
}{
	{"both ways", true, true},
	{"what it sends is lost", true, false},
	{"what is sent to it is lost", false, true},
	{"both ways again", true, true},
	{"both ways once more", true, true},
}

// cutOff is a cut of the leader and what was known of it then.
type cutOff struct {
	harness.Outage
	node      *harness.Node
	term      uint64
	committed uint64    // what it called committed when it was cut off for a while
	silent    time.Time // nothing that it sent after this reached anybody; zero if only its ears were stopped
}

// leading is who leads, and in which term; all workers have come to it.
func (l *load) leading() (leader *harness.Node, term uint64) {
	l.t.Helper()
	harness.Eventually(l.t, harness.ReadyLimit, "there is a leader and it goes on leading", func() bool {
		leader = l.cl.Leader()
		s, err := leader.Stale().Status(context.Background())
		term = s.Term
		return err == nil && s.State == "leader" && len(s.Workers) == len(l.cl.Nodes)
	})
	return leader, term
}

// cut cuts the leader off for a while.
func (l *load) cut(w *harness.Net, way int, d time.Duration) cutOff {
	t := l.t
	t.Helper()
	old, term := l.leading()
	c := cutOff{node: old, term: term}
	me := slices.Index(l.cl.Nodes, old)
	from := time.Now()
	w.Isolate(me, ways[way].sends, ways[way].gets)
	if ways[way].sends {
		c.silent = time.Now()
	}
	end := time.Now().Add(d)
	harness.Eventually(t, harness.ReadyLimit, old.ID+" gives up", func() bool {
		s, err := old.Stale().Status(context.Background())
		return err == nil && s.State != "leader"
	})
	gaveUp := time.Since(from)
	at := index(t, old, "commit_index")
	var next *harness.Node
	harness.Eventually(t, harness.ReadyLimit, "another leads", func() bool { next = l.cl.Leader(); return next != old })
	took := time.Since(from)
	time.Sleep(time.Until(end))
	if c.committed = index(t, old, "commit_index"); c.committed != at {
		t.Errorf("%s was cut off, had given up, and went on from commit index %d to %d", old.ID, at, c.committed)
	}
	c.Outage = old.CutOff(ways[way].name, from)
	w.Heal()
	healed := time.Now()
	var s client.Status
	harness.Eventually(t, harness.ReadyLimit, old.ID+" knows who leads now", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var err error
		s, err = old.Stale().Status(ctx)
		return err == nil && s.Ready && s.Term > c.term && s.Leader != ""
	})
	t.Logf("cut %s: %s led term %d, gave up after %s; %s led %s after the cut; healed after %s, and %s later it follows %s in term %d", ways[way].name, old.ID, c.term,
		gaveUp.Round(time.Millisecond), next.ID, took.Round(time.Millisecond), c.Dead.Sub(from).Round(time.Millisecond),
		time.Since(healed).Round(time.Millisecond), s.Leader, s.Term)
	return c
}

// stayed: what a leader called committed is in the log of everybody, in its term.
func (l *load) stayed(c cutOff) {
	l.t.Helper()
	for _, n := range l.cl.Nodes {
		log, err := harness.RaftLog(n.Dir)
		if err != nil {
			l.t.Fatal(err)
		}
		if e := log[c.committed-log[0].Index]; e.Index != c.committed || e.Term != c.term {
			l.t.Errorf("%s called entry %d of term %d committed, and %s has %+v", c.node.ID, c.committed, c.term, n.ID, e)
		}
	}
}

// TestLeaderCutOff cuts the leader off from the other two, both ways and one way, for less than a lease. The others go
// on without it; it can commit nothing, and its worker starts nothing. What that had in hand it hands in when the cut
// heals, so nothing is repeated.
func TestLeaderCutOff(t *testing.T) {
	beside(t)
	jobs, cuts, span, wind := 50, 1, 3*time.Second, 3*time.Second
	if harness.Long() {
		jobs, cuts, span, wind = 1000, len(ways), 10*time.Second, 10*time.Second
	}
	seed := harness.Seed(t)
	w := harness.NewNet(t, 3)
	l := newClusterLoadAt(t, seed, jobs, allow, harness.NewTargetAt(t, w.Host), w.Place, wholeLog...)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond) // through the one that is cut off, too
	time.Sleep(time.Second)
	var all []cutOff
	var outages []harness.Outage
	for i := range cuts {
		c := l.cut(w, i, span)
		all, outages = append(all, c), append(outages, c.Outage)
		time.Sleep(2 * time.Second)
	}
	stop()
	b, r := l.settle(wind)
	if r.Repeated > 0 || r.LostWorkers > 0 || r.NotRun > 0 {
		t.Errorf("nothing expired, and %d runs were repeated, %d attempts lost, %d occurrences did not run", r.Repeated,
			r.LostWorkers, r.NotRun)
	}
	for _, c := range all {
		l.idle(b.Final.History, c.Outage, c.node, c.term)
	}
	l.logGaps("cutting off the leader", b.Final.History, outages)
	l.cl.StopAndCheck()
	for _, c := range all {
		l.stayed(c)
		if !c.silent.IsZero() {
			l.nothingWritten(c.term, c.silent)
		}
	}
}

// TestWorkerCutOffLetsGo cuts the leader off for longer than a lease while runs take long. Its worker must have let go
// of them before anybody else gets them, and those of the others stay where they are.
func TestWorkerCutOffLetsGo(t *testing.T) {
	heavy(t)
	if !harness.Long() {
		t.Skip("waits for a lease to end; set CARILLON_LONG=1")
	}
	seed := harness.Seed(t)
	w := harness.NewNet(t, 3)
	l := newClusterLoadAt(t, seed, 100, allow, harness.NewTargetAt(t, w.Host), w.Place, wholeLog...)
	const span, held = 40 * time.Second, 55 * time.Second
	l.target.Behave(func(s harness.Seen) (time.Duration, int) {
		if strings.HasPrefix(s.Token, "manual-") && s.Attempt == 1 {
			return held, http.StatusOK
		}
		return brisk(s)
	})
	leader := l.cl.Leader()
	ctx := context.Background()
	holds := func() (mine, others int) {
		page, err := leader.Client.Runs(ctx, client.RunQuery{Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Runs {
			switch {
			case r.Origin != job.OriginManual:
			case r.Worker == leader.ID:
				mine++
			case r.Worker != "":
				others++
			}
		}
		return mine, others
	}
	asked := 0
	for ; asked < 100; asked++ {
		if mine, others := holds(); mine >= 3 && others >= 1 {
			break
		}
		l.trigger(ctx, fmt.Sprintf("manual-%d", asked%manualJobs), fmt.Sprintf("held-%d-%d", seed, asked))
		time.Sleep(20 * time.Millisecond)
	}
	harness.Eventually(t, harness.ReadyLimit, "all are under way", func() bool { return l.target.InFlight() >= asked })
	c := l.cut(w, 0, span)
	if c.node != leader {
		t.Skipf("%s led when the runs began, and %s when the cut came", leader.ID, c.node.ID)
	}
	b, r := l.settle(3 * time.Second)
	if r.Repeated == 0 || r.NotRun > 0 {
		t.Errorf("%d runs were repeated, %d occurrences did not run", r.Repeated, r.NotRun)
	}
	byFence := map[uint64]job.Run{}
	for _, rec := range b.Final.History {
		byFence[rec.Fence] = rec
	}
	let, kept := 0, 0
	for _, s := range b.Seen {
		if !strings.HasPrefix(s.Token, "manual-") || s.Attempt != 1 {
			continue
		}
		if worker := byFence[s.Fence].Worker; worker != leader.ID {
			kept++
			if s.Answered.IsZero() {
				t.Errorf("%s ran on %s, which was not cut off, and was given up", s.Run, worker)
			}
			continue
		}
		if let++; s.Gone.IsZero() || s.Gone.After(c.Dead) {
			t.Errorf("%s was cut off from %s to %s and worked on %s until %s", leader.ID, c.Sent.Format(clock),
				c.Dead.Format(clock), s.Run, s.Gone.Format(clock))
		} else if let == 1 {
			t.Logf("%s let go %s after the cut", leader.ID, s.Gone.Sub(c.Sent).Round(time.Millisecond))
		}
	}
	t.Logf("%d runs were held: %s let go of %d, the others kept %d", asked, leader.ID, let, kept)
	if let == 0 || kept == 0 {
		t.Error("that shows nothing")
	}
	l.idle(b.Final.History, c.Outage, c.node, c.term)
	l.cl.StopAndCheck()
	l.stayed(c)
	l.nothingWritten(c.term, c.silent)
}

// TestFollowerCutOffFromTheLeader cuts one way of three: a follower and the leader do not hear each other, and the
// third hears both. The follower must not take the leadership from one that works. It says that it is not ready; what
// its worker has in hand it hands in afterwards.
func TestFollowerCutOffFromTheLeader(t *testing.T) {
	heavy(t)
	if !harness.Long() {
		t.Skip("set CARILLON_LONG=1")
	}
	seed := harness.Seed(t)
	w := harness.NewNet(t, 3)
	l := newClusterLoadAt(t, seed, 200, allow, harness.NewTargetAt(t, w.Host), w.Place)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	time.Sleep(time.Second)
	leader, term := l.leading()
	follower := l.cl.Others(leader)[0]
	a, b := slices.Index(l.cl.Nodes, leader), slices.Index(l.cl.Nodes, follower)
	from := time.Now()
	w.Cut(a, b)
	w.Cut(b, a)
	harness.Eventually(t, harness.ReadyLimit, follower.ID+" knows that it is cut off", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return follower.Client.Ready(ctx) != nil
	})
	time.Sleep(10*time.Second - time.Since(from))
	l.goesOn()
	is := l.cl.Leader()
	now := index(t, is, "term")
	follower.CutOff("from the leader", from)
	w.Heal()
	if is != leader || now != term {
		t.Errorf("%s led term %d, could reach %s, and now %s leads term %d", leader.ID, term, l.cl.Others(leader)[1].ID,
			is.ID, now)
	}
	if err := follower.AwaitReady(); err != nil {
		t.Error(err)
	}
	stop()
	if _, r := l.settle(5 * time.Second); r.Repeated > 0 || r.LostWorkers > 0 || r.NotRun > 0 {
		t.Errorf("nothing expired, and %d runs were repeated, %d attempts lost, %d occurrences did not run", r.Repeated,
			r.LostWorkers, r.NotRun)
	}
	l.cl.StopAndCheck()
}

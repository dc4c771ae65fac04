package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// t0 is when the hand-made history begins.
var t0 = time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)

func ms(n int) time.Time     { return t0.Add(time.Duration(n) * time.Millisecond) }
func inst(n int) job.Instant { return job.At(ms(n)) }
func key(id job.ID, n int, o job.Origin) job.RunKey {
	return job.RunKey{Job: id, At: int64(inst(n)), Origin: o}
}

func promised(id job.ID, token string) job.Job {
	j := job.Job{ID: id, CreatedAt: inst(0)}
	j.Payload = []byte(fmt.Sprintf(`{"url":"http://target/%s"}`, token))
	return j
}

func record(seq uint64, k job.RunKey, attempt int, fence uint64, status job.RunStatus, reason job.Reason, claimed, finished int) job.Run {
	return job.Run{Seq: seq, RunID: k.String(), JobID: k.Job, ScheduledAt: job.Instant(k.At), Origin: k.Origin, Attempt: attempt, Fence: fence,
		Worker: "n1", Status: status, Reason: reason, ClaimedAt: inst(claimed), FinishedAt: inst(finished)}
}

func interval(seq uint64, id job.ID, first, last int, count int64) job.Run {
	return job.Run{Seq: seq, JobID: id, Status: job.RunSkipped, Reason: job.ReasonOverlap, First: inst(first), Last: inst(last), Count: count}
}

func request(token string, k job.RunKey, attempt int, fence uint64, arrived, answered int) Seen {
	s := Seen{Token: token, Arrived: ms(arrived), Key: job.IdempotencyKey("", "", k), Job: k.Job.String(), Run: k.String(),
		ScheduledAt: job.Instant(k.At).String(), Attempt: attempt, Fence: fence}
	if answered > 0 {
		s.Answered, s.Status = ms(answered), 200
	}
	return s
}

// honest is a history in which everything is as it should be: a one-off whose first attempt was lost in a kill, an @every 1s job with
// two skipped occurrences, a manual job with one run, a create that was never answered and does not exist, and a one-off that is delivered
// at most once and was lost in the kill.
func honest() *Books {
	one, every, man := job.ID(1), job.ID(2), job.ID(3)
	oneAt := key(one, 1000, job.OriginSchedule)
	manAt := key(man, 2345, job.OriginManual)
	b := &Books{
		Promises: []Promise{
			{Token: "one", Kind: OneOff, Acked: one, At: inst(1000)},
			{Token: "every", Kind: Every, Acked: every, Step: time.Second},
			{Token: "manual", Kind: Manual, Acked: man},
			{Token: "maybe", Kind: OneOff, At: inst(1000)},
			{Token: "once", Kind: OneOff, Acked: 4, At: inst(1040), Once: true},
		},
		Triggers: []Trigger{{Token: "manual", Run: manAt.String()}},
		Jobs:     []job.Job{promised(one, "one"), promised(every, "every"), promised(man, "manual"), promised(4, "once")},
		Outages:  []Outage{{Node: "n1", Sent: ms(1050), Dead: ms(1060), Ready: ms(1500)}},
		Seen:     []Seen{request("one", oneAt, 1, 1, 1010, 0), request("one", oneAt, 2, 4, 1510, 1520), request("manual", manAt, 1, 5, 2350, 2360)},
		History: []job.Run{
			record(1, oneAt, 1, 1, job.RunFailed, job.ReasonWorkerLost, 1005, 1500),
			record(2, oneAt, 2, 4, job.RunSucceeded, job.ReasonNone, 1505, 1521),
			record(3, manAt, 1, 5, job.RunSucceeded, job.ReasonNone, 2346, 2361),
		},
	}
	onceAt := key(4, 1040, job.OriginSchedule)
	b.Seen = append(b.Seen, request("once", onceAt, 1, 6, 1045, 0))
	b.History = append(b.History, record(4, onceAt, 1, 6, job.RunLost, job.ReasonWorkerLost, 1041, 1500))
	b.Jobs[1].EndAt = inst(5900)
	// Occurrences at 500, 1500, (2500, 3500 skipped), 4500, 5500.
	for i, at := range []int{500, 1500, 4500, 5500} {
		k := key(every, at, job.OriginSchedule)
		fence := uint64(10 + i)
		if at == 4500 {
			b.History = append(b.History, interval(5+uint64(i), every, 2500, 3500, 2))
		}
		b.History = append(b.History, record(6+uint64(i), k, 1, fence, job.RunSucceeded, job.ReasonNone, at+1, at+20))
		b.Seen = append(b.Seen, request("every", k, 1, fence, at+2, at+10))
	}
	for i := range b.History {
		b.History[i].Seq = uint64(i + 1)
	}
	return b
}

func TestAuditAcceptsAnHonestHistory(t *testing.T) {
	r := honest().Audit()
	for _, p := range r.Problems {
		t.Error(p)
	}
	if r.Jobs != 4 || r.Runs != 7 || r.Requests != 8 || r.Repeated != 1 || r.Lost != 2 || r.GivenUp != 1 || r.NotRun != 2 {
		t.Errorf("counted %s", r)
	}
}

// cutOff makes the kill a cut that was longer than a lease; the worker let go of its request in time.
func cutOff(b *Books) {
	b.Outages[0].Cut = true
	b.Outages[0].Dead = b.Outages[0].Sent.Add(time.Minute)
	b.Seen[0].Gone = ms(1400)
}

func TestAuditAcceptsALongCut(t *testing.T) {
	b := honest()
	cutOff(b)
	for _, p := range b.Audit().Problems {
		t.Error(p)
	}
}

// drop removes the records of a run, or of one attempt of it.
func drop(b *Books, k job.RunKey, attempt int) {
	var kept []job.Run
	for _, r := range b.History {
		if r.RunID != k.String() || attempt != 0 && r.Attempt != attempt {
			kept = append(kept, r)
		}
	}
	b.History = kept
}

// add puts one more record behind the others.
func add(b *Books, r job.Run) {
	r.Seq = b.History[len(b.History)-1].Seq + 1
	b.History = append(b.History, r)
}

// TestAuditRefusesWrongHistories: a checker that cannot fail proves nothing.
func TestAuditRefusesWrongHistories(t *testing.T) {
	one := key(1, 1000, job.OriginSchedule)
	man := key(3, 2345, job.OriginManual)
	last := key(2, 5500, job.OriginSchedule)
	for _, c := range []struct {
		name  string
		wrong func(b *Books)
		want  string
	}{
		{"acknowledged job lost", func(b *Books) { b.Jobs = b.Jobs[1:] }, "one is lost: it was acknowledged"},
		{"job created twice", func(b *Books) { b.Jobs = append(b.Jobs, promised(9, "one")) }, "one was created twice"},
		{"job under another id", func(b *Books) { b.Promises[0].Acked = 7 }, "acknowledged as j_7 and exists as j_1"},
		{"job nobody created", func(b *Books) { b.Jobs = append(b.Jobs, promised(9, "other")) }, "was invented: nobody created it"},
		{"one-off lost", func(b *Books) { drop(b, one, 0); b.Seen = b.Seen[2:] }, "is lost: it never ran"},
		{"one-off lost after a kill", func(b *Books) { drop(b, one, 2); b.Seen = append(b.Seen[:1:1], b.Seen[2:]...) }, "nothing came after"},
		{"one-off that exists although unanswered, and never ran", func(b *Books) { b.Jobs = append(b.Jobs, promised(9, "maybe")) }, "maybe (j_9) is lost"},
		{"one-off skipped", func(b *Books) { add(b, interval(0, 1, 1000, 1000, 1)) }, "one did not run"},
		{"one-off at another time", func(b *Books) { b.Promises[0].At = inst(2000) }, "was invented: one runs once"},
		{"succeeded twice", func(b *Books) {
			add(b, record(0, one, 3, 40, job.RunSucceeded, 0, 1600, 1700))
			b.Seen = append(b.Seen, request("one", one, 3, 40, 1610, 1620))
		}, "is doubled: it succeeded 2 times"},
		{"sent twice without a kill", func(b *Books) { b.Outages[0] = Outage{Node: "n1", Sent: ms(9000), Dead: ms(9001)} }, "was neither killed nor cut off in between"},
		{"loss that no kill explains", func(b *Books) { b.Outages[0] = Outage{Node: "n1", Sent: ms(9000), Dead: ms(9001)} }, "that was neither killed nor cut off then"},
		{"sent twice, and another node was killed", func(b *Books) { b.Outages[0].Node = "n2" }, "its worker n1 was neither killed nor cut off in between"},
		{"loss when another node was killed", func(b *Books) { b.Outages[0].Node = "n2" }, "lost its worker n1"},
		{"sent twice over a short pause", func(b *Books) { b.Outages[0].Paused = true }, "its worker n1 was neither killed nor cut off in between"},
		{"sent twice over a short cut", func(b *Books) { b.Outages[0].Cut = true }, "its worker n1 was neither killed nor cut off in between"},
		{"sent twice over a cut, both at a time", func(b *Books) { cutOff(b); b.Seen[0].Gone = time.Time{} }, "still worked on the request"},
		{"sent twice over a cut, and let go too late", func(b *Books) { cutOff(b); b.Seen[0].Gone = ms(1511) }, "still worked on the request"},
		{"sent again after it succeeded", func(b *Books) { b.Seen = append(b.Seen, request("manual", man, 2, 41, 2400, 2410)) }, "of which the history knows nothing"},
		{"the same fence twice at the target", func(b *Books) { b.Seen = append(b.Seen, request("every", last, 1, 13, 5600, 5610)) }, "fence 13 was sent twice"},
		{"the same fence twice in the history", func(b *Books) { b.History[2].Fence = 4 }, "fence 4 was given out twice"},
		{"a lower fence the second time", func(b *Books) { swapFences(b) }, "with fence 1 after fence 4"},
		{"the same attempt twice", func(b *Books) { b.Seen[1].Attempt = 1; b.History[1].Attempt = 1 }, "as attempt 1 after attempt 1"},
		{"changed key", func(b *Books) { b.Seen[1].Key = "another" }, "the key changed"},
		{"no key", func(b *Books) { b.Seen[2].Key = "" }, `with key ""`},
		{"key of another run", func(b *Books) { b.Seen[2].Key = b.Seen[1].Key }, "was sent for r_"},
		{"request for what does not exist", func(b *Books) { b.Seen[2].Token = "maybe" }, "which does not exist"},
		{"request for what was never sent", func(b *Books) { b.Seen[2].Token = "x" }, "which does not exist"},
		{"request of another job", func(b *Books) { b.Seen[2].Run = one.String() }, "got a request of run"},
		{"request too early", func(b *Books) { b.Seen[2].Arrived = ms(2300) }, "45 ms before its time"},
		{"request the history knows nothing of", func(b *Books) { drop(b, man, 0) }, "of which the history knows nothing"},
		{"success nobody saw", func(b *Books) { b.Seen = append(b.Seen[:2:2], b.Seen[3:]...) }, "the target never saw it"},
		{"success the target did not give", func(b *Books) { b.Seen[2].Status = 500 }, "the target answered 500"},
		{"failure the target did not give", func(b *Books) { b.History[0].Reason = job.ReasonNone }, "the target did not refuse it"},
		{"dead", func(b *Books) { b.History[1].Status = job.RunDead }, "ended as dead"},
		{"still open", func(b *Books) { b.Open = []job.Run{record(0, man, 1, 5, job.RunClaimed, 0, 1, 0)} }, "is still open"},
		{"trigger lost", func(b *Books) { drop(b, man, 0); b.Seen = append(b.Seen[:2:2], b.Seen[3:]...) }, "is lost: it was acknowledged and never ran"},
		{"trigger doubled", func(b *Books) {
			again := key(3, 2346, job.OriginManual)
			add(b, record(0, again, 1, 50, job.RunSucceeded, 0, 2350, 2370))
			b.Seen = append(b.Seen, request("manual", again, 1, 50, 2351, 2360))
		}, "invented or doubled"},
		{"gap in the grid", func(b *Books) {
			drop(b, key(2, 1500, job.OriginSchedule), 0)
			unsee(b, key(2, 1500, job.OriginSchedule))
		}, "has a gap in its grid"},
		{"last occurrence lost", func(b *Books) { drop(b, last, 0); unsee(b, last) }, "ends at"},
		{"first occurrence lost", func(b *Books) { k := key(2, 500, job.OriginSchedule); drop(b, k, 0); unsee(b, k) }, "its first occurrence is at"},
		{"occurrence after the end", func(b *Books) { b.Jobs[1].EndAt = inst(5400) }, "ends at"},
		{"no end", func(b *Books) { b.Jobs[1].EndAt = 0 }, "has no end"},
		{"occurrence off the grid", func(b *Books) {
			k := key(2, 4700, job.OriginSchedule)
			add(b, record(0, k, 1, 60, job.RunSucceeded, 0, 4701, 4720))
			b.Seen = append(b.Seen, request("every", k, 1, 60, 4702, 4710))
		}, "has a gap in its grid"},
		{"ran and did not run", func(b *Books) { add(b, interval(0, 2, 4500, 4500, 1)) }, "is accounted for 2 times"},
		{"overlapping intervals", func(b *Books) { add(b, interval(0, 2, 3500, 3500, 1)) }, "is accounted for 2 times"},
		{"interval that counts wrong", func(b *Books) { gapOf(b).Count = 3 }, "cannot have 3 occurrences"},
		{"interval too short", func(b *Books) { gapOf(b).Count, gapOf(b).Last = 1, inst(2500) }, "has a gap in its grid"},
		{"interval that does not count", func(b *Books) { gapOf(b).CountAtLeast = true }, "does not say how many"},
		{"interval without a reason", func(b *Books) { gapOf(b).Reason = job.ReasonNone }, "for no reason"},
		{"lost although at least once", func(b *Books) { b.Promises[4].Once = false }, "ended as lost"},
		{"at most once, and sent again", func(b *Books) {
			k := key(4, 1040, job.OriginSchedule)
			b.Seen = append(b.Seen, request("once", k, 2, 70, 1600, 1610))
			add(b, record(0, k, 2, 70, job.RunSucceeded, 0, 1590, 1620))
		}, "it was to be delivered at most once"},
		{"at most once, and lost without a kill", func(b *Books) { b.Outages[0].Sent, b.Outages[0].Dead = ms(1000), ms(1030) }, "that was neither killed nor cut off then"},
		{"record out of order", func(b *Books) { b.History[3].Seq = 1 }, "stands behind"},
		{"record of a job that is not there", func(b *Books) { b.History[2].JobID = 77 }, "which does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := honest()
			c.wrong(b)
			r := b.Audit()
			if len(r.Problems) == 0 {
				t.Fatal("the audit found nothing wrong")
			}
			if all := strings.Join(r.Problems, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("the audit does not say %q but\n%s", c.want, all)
			}
		})
	}
}

func swapFences(b *Books) {
	b.Seen[0].Fence, b.Seen[1].Fence = 4, 1
	b.History[0].Fence, b.History[1].Fence = 4, 1
}

func unsee(b *Books, k job.RunKey) {
	var kept []Seen
	for _, s := range b.Seen {
		if s.Run != k.String() {
			kept = append(kept, s)
		}
	}
	b.Seen = kept
}

func gapOf(b *Books) *job.Run {
	for i := range b.History {
		if b.History[i].RunID == "" {
			return &b.History[i]
		}
	}
	return nil
}

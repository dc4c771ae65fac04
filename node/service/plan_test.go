package service

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

func clock(s string) int64 {
	if s == "" {
		return 0
	}
	t, err := time.Parse("15:04:05", s)
	if err != nil {
		panic(err)
	}
	return time.Date(2027, 3, 1, t.Hour(), t.Minute(), t.Second(), 0, time.UTC).UnixMilli()
}

func at(s string) fsm.When { return fsm.When{At: clock(s), Ready: clock(s)} }

func dropped(first, last string, n int64, reason job.Reason) fsm.Gap {
	return fsm.Gap{First: clock(first), Last: clock(last), Count: n, Status: job.RunSkipped, Reason: reason}
}

// heldJob is a job whose next occurrence is due at a time.
func heldJob(schedule, due, last string) view.Held {
	h := view.Held{ID: 7, Def: store.Definition{Spec: job.Spec{Schedule: schedule}}}
	h.State.LastNominal = clock(last)
	if due == "" {
		h.Place.Parked = true
	} else {
		h.Place = store.Place{At: clock(due), Ready: clock(due)}
	}
	return h
}

func paused(h view.Held) view.Held {
	h.State.Paused = true
	h.State.ParkedAt, h.State.ParkedReady = h.Place.At, h.Place.Ready
	h.Place = store.Place{Parked: true}
	return h
}

func pausedAt(h view.Held, since string) view.Held {
	h = paused(h)
	h.State.PausedAt = clock(since)
	return h
}

func TestPlanEdit(t *testing.T) {
	const hourly, quarter = "0 * * * *", "*/15 * * * *"
	for _, tc := range []struct {
		name string
		h    view.Held
		spec job.Spec
		now  string
		next fsm.When
		gap  fsm.Gap
	}{
		{"a one-off that was canceled gets an earlier time",
			heldJob("2027-03-01T12:00:00Z", "",
				""), job.Spec{Schedule: "2027-03-01T11:30:00Z"}, "11:20:00", at("11:30:00"), fsm.Gap{}},
		{"a one-off that was canceled is not brought back by another field",
			heldJob("2027-03-01T12:00:00Z", "", ""), job.Spec{Schedule: "2027-03-01T12:00:00Z",
				EndAt: job.Instant(clock("15:00:00"))}, "11:20:00", fsm.When{}, fsm.Gap{}},
		{"no schedule field changed: the due place stays",
			heldJob(hourly, "12:00:00", "11:00:00"), job.Spec{Schedule: hourly,
				Timeout: 5}, "11:20:00", at("12:00:00"), fsm.Gap{}},
		{"no schedule field changed, and it is due already",
			heldJob(hourly, "12:00:00", "11:00:00"), job.Spec{Schedule: hourly,
				Priority: "high"}, "12:20:00", at("12:00:00"), fsm.Gap{}},
		{"denser, due later: it counts from now",
			heldJob(hourly, "12:00:00",
				"11:00:00"), job.Spec{Schedule: quarter}, "11:20:00", at("11:30:00"), fsm.Gap{}},
		{"never at or before the last one claimed",
			heldJob(hourly, "12:00:00",
				"11:30:00"), job.Spec{Schedule: quarter}, "11:20:00", at("11:45:00"), fsm.Gap{}},
		{"due and not claimed, in both schedules: kept",
			heldJob(hourly, "12:00:00",
				"11:00:00"), job.Spec{Schedule: quarter}, "12:20:00", at("12:00:00"), fsm.Gap{}},
		{"due and not claimed, in the old schedule only: dropped with a record",
			heldJob(hourly, "12:00:00", "11:00:00"), job.Spec{Schedule: "30 * * * *"}, "12:20:00", at("12:30:00"),
			dropped("12:00:00", "12:00:00", 1, job.ReasonEdited)},
		{"several due and dropped",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: "0 18 * * *"}, "12:40:00", at("18:00:00"),
			dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"the new schedule has one among those that are due: all of them are dropped",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: "20 * * * *"}, "12:40:00", at("13:20:00"),
			dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"the new schedule has the first that is due, and not all: all of them are dropped",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: "*/30 * * * *"}, "12:40:00", at("13:00:00"),
			dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"the new schedule has all that are due: kept",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: "*/5 * * * *"}, "12:40:00", at("12:00:00"),
			fsm.Gap{}},
		{"end_at among those that are due",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: quarter, EndAt: job.Instant(clock("12:20:00"))},
			"12:40:00", fsm.When{}, dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"end_at behind those that are due: kept",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: quarter, EndAt: job.Instant(clock("12:41:00"))},
			"12:40:00", at("12:00:00"), fsm.Gap{}},
		{"max_runs lets only some of those run that are due",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: quarter, MaxRuns: 2},
			"12:40:00", at("12:45:00"), dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"max_runs below what ran, and some are due",
			func() view.Held { h := heldJob(quarter, "12:00:00", "11:45:00"); h.State.Runs = 2; return h }(),
			job.Spec{Schedule: quarter, MaxRuns: 2}, "12:40:00", fsm.When{},
			dropped("12:00:00", "12:30:00", 3, job.ReasonEdited)},
		{"max_runs lets all of those run that are due: kept",
			heldJob(quarter, "12:00:00", "11:45:00"), job.Spec{Schedule: quarter, MaxRuns: 3},
			"12:40:00", at("12:00:00"), fsm.Gap{}},
		{"max_runs raised, and the last that the old one had is due: kept",
			func() view.Held {
				h := heldJob(quarter, "12:00:00", "11:45:00")
				h.State.Runs, h.Def.Spec.MaxRuns = 4, 5
				return h
			}(), job.Spec{Schedule: quarter, MaxRuns: 6}, "12:40:00", at("12:00:00"), fsm.Gap{}},
		{"a one-off moved to an earlier time",
			heldJob("2027-03-01T12:00:00Z", "12:00:00",
				""), job.Spec{Schedule: "2027-03-01T11:30:00Z"}, "11:00:00", at("11:30:00"), fsm.Gap{}},
		{"a one-off moved into the past runs now",
			heldJob("2027-03-01T12:00:00Z", "12:00:00",
				""), job.Spec{Schedule: "2027-03-01T08:00:00Z"}, "11:00:00", at("08:00:00"), fsm.Gap{}},
		{"a one-off moved into the past is missed under skip",
			heldJob("2027-03-01T12:00:00Z", "12:00:00", ""), job.Spec{Schedule: "2027-03-01T08:00:00Z",
				Missed: job.Missed{Policy: job.MissedSkip, Grace: job.Duration(time.Minute)}}, "11:00:00",
			fsm.When{}, fsm.Gap{First: clock("08:00:00"), Last: clock("08:00:00"), Count: 1, Status: job.RunMissed,
				Reason: job.ReasonOutage}},
		{"a one-off moved back within grace runs now",
			heldJob("2027-03-01T12:00:00Z", "12:00:00", ""), job.Spec{Schedule: "2027-03-01T10:59:00Z",
				Missed: job.Missed{Policy: job.MissedSkip, Grace: job.Duration(time.Minute)}}, "11:00:00",
			at("10:59:00"), fsm.Gap{}},
		{"a one-off that ran gets another time",
			heldJob("2027-03-01T12:00:00Z", "",
				"12:00:00"), job.Spec{Schedule: "2027-03-01T15:00:00Z"}, "13:00:00", at("15:00:00"), fsm.Gap{}},
		{"a one-off that ran and keeps its time",
			heldJob("2027-03-01T12:00:00Z", "", "12:00:00"), job.Spec{Schedule: "2027-03-01T12:00:00Z",
				Jitter: job.Duration(time.Millisecond)}, "13:00:00", fsm.When{}, fsm.Gap{}},
		{"manual from now on",
			heldJob(hourly, "12:00:00",
				"11:00:00"), job.Spec{Schedule: "@manual"}, "12:10:00", fsm.When{}, dropped("12:00:00", "12:00:00", 1, job.ReasonEdited)},
		{"scheduled from now on",
			heldJob("@manual", "", ""), job.Spec{Schedule: hourly}, "12:10:00", at("13:00:00"), fsm.Gap{}},
		{"paused: what passed is recorded as paused, the next one waits",
			paused(heldJob(hourly, "12:00:00", "11:00:00")), job.Spec{Schedule: quarter}, "14:20:00", at("14:30:00"),
			dropped("12:00:00", "14:00:00", 3, job.ReasonPaused)},
		{"max_runs below what ran",
			func() view.Held { h := heldJob(hourly, "12:00:00", "11:00:00"); h.State.Runs = 5; return h }(),
			job.Spec{Schedule: hourly, MaxRuns: 5}, "11:20:00", fsm.When{}, fsm.Gap{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := planEdit(&tc.h, &tc.spec, clock(tc.now))
			if err != nil {
				t.Fatal(err)
			}
			if p.next != tc.next {
				t.Errorf("next %v, want %v", job.Instant(p.next.At), job.Instant(tc.next.At))
			}
			if p.gap != tc.gap {
				t.Errorf("gap %+v, want %+v", p.gap, tc.gap)
			}
		})
	}
}

// A recurring job with a backlog becomes a one-off in the past: that one runs, and each of the others is accounted for,
// once.
func TestEditIntoAPastOneOff(t *testing.T) {
	const quarter = "*/15 * * * *"
	old := heldJob(quarter, "12:00:00", "")
	ended := heldJob(quarter, "12:00:00", "")
	ended.Def.Spec.EndAt = job.Instant(clock("12:20:00"))
	broken := heldJob("nonsense", "12:00:00", "")
	for name, tc := range map[string]struct {
		h             view.Held
		to            string
		next          fsm.When
		before, after fsm.Gap
	}{
		"before the backlog": {old, "08:00:00", at("08:00:00"), fsm.Gap{},
			dropped("12:00:00", "13:00:00", 5, job.ReasonEdited)},
		"within it": {old, "12:20:00", at("12:20:00"),
			dropped("12:00:00", "12:15:00", 2, job.ReasonEdited), dropped("12:30:00", "13:00:00", 3, job.ReasonEdited)},
		"one of them": {old, "12:30:00", at("12:30:00"),
			dropped("12:00:00", "12:15:00", 2, job.ReasonEdited), dropped("12:45:00", "13:00:00", 2, job.ReasonEdited)},
		"the first of them": {old, "12:00:00", at("12:00:00"), fsm.Gap{},
			dropped("12:15:00", "13:00:00", 4, job.ReasonEdited)},
		"the last of them": {old, "13:00:00", at("13:00:00"),
			dropped("12:00:00", "12:45:00", 4, job.ReasonEdited), fsm.Gap{}},
		"to come": {old, "14:00:00", at("14:00:00"),
			dropped("12:00:00", "13:00:00", 5, job.ReasonEdited), fsm.Gap{}},
		"before the last one claimed": {heldJob(quarter, "12:00:00", "11:45:00"), "08:00:00", fsm.When{},
			dropped("12:00:00", "13:00:00", 5, job.ReasonEdited), fsm.Gap{}},
		"paused": {paused(old), "08:00:00", at("08:00:00"), fsm.Gap{},
			dropped("12:00:00", "13:00:00", 5, job.ReasonPaused)},
		"the old schedule has ended": {ended, "08:00:00", at("08:00:00"), fsm.Gap{},
			dropped("12:00:00", "12:15:00", 2, job.ReasonEdited)},
		"the old one cannot be read": {broken, "08:00:00", at("08:00:00"), fsm.Gap{},
			dropped("12:00:00", "12:00:00", 1, job.ReasonEdited)},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := planEdit(&tc.h, &job.Spec{Schedule: "2027-03-01T" + tc.to + "Z"}, clock("13:10:00"))
			if err != nil {
				t.Fatal(err)
			}
			if p.next != tc.next || p.gap != tc.before || p.after != tc.after {
				t.Errorf("got %+v\nwant %+v %+v %+v", p, tc.next, tc.before, tc.after)
			}
		})
	}
}

// An edit between an occurrence's time and its jittered start must not lose it.
func TestEditInsideTheJitterGap(t *testing.T) {
	h := heldJob("0 * * * *", "12:00:00", "11:00:00")
	h.Def.Spec.Jitter = job.Duration(30 * time.Minute)
	h.Place.Ready += 20 * 60_000
	p, err := planEdit(&h, &job.Spec{Schedule: "0 * * * *", Jitter: job.Duration(40 * time.Minute)}, clock("12:10:00"))
	if err != nil {
		t.Fatal(err)
	}
	if p.next.At != clock("12:00:00") || p.next.Ready < p.next.At {
		t.Errorf("the occurrence at 12:00 became %v", p.next)
	}
}

func TestPlanResume(t *testing.T) {
	const hourly = "0 * * * *"
	for _, tc := range []struct {
		name string
		h    view.Held
		now  string
		next fsm.When
		gap  fsm.Gap
	}{
		{"nothing passed", paused(heldJob(hourly, "12:00:00", "11:00:00")), "11:30:00", at("12:00:00"), fsm.Gap{}},
		{"three passed", paused(heldJob(hourly, "12:00:00", "11:00:00")), "14:30:00", at("15:00:00"),
			dropped("12:00:00", "14:00:00", 3, job.ReasonPaused)},
		{"due before the pause", pausedAt(heldJob(hourly, "12:00:00", "11:00:00"), "13:30:00"), "14:30:00",
			at("12:00:00"), fsm.Gap{}},
		{"due when it was paused", pausedAt(heldJob(hourly, "12:00:00", "11:00:00"), "12:00:00"), "14:30:00",
			at("12:00:00"), fsm.Gap{}},
		{"due after the pause", pausedAt(heldJob(hourly, "12:00:00", "11:00:00"), "11:59:59"), "14:30:00",
			at("15:00:00"), dropped("12:00:00", "14:00:00", 3, job.ReasonPaused)},
		{"at the very time of one", paused(heldJob(hourly, "12:00:00", "11:00:00")), "12:00:00", at("13:00:00"),
			dropped("12:00:00", "12:00:00", 1, job.ReasonPaused)},
		{"a one-off whose time passed runs now", paused(heldJob("2027-03-01T12:00:00Z", "12:00:00", "")), "14:00:00",
			fsm.When{At: clock("12:00:00"), Ready: clock("14:00:00")}, fsm.Gap{}},
		{"a manual job has none", paused(heldJob("@manual", "", "")), "14:00:00", fsm.When{}, fsm.Gap{}},
		{"quarantined", func() view.Held {
			h := paused(heldJob(hourly, "12:00:00", "11:00:00"))
			h.State.Quarantined = true
			return h
		}(),
			"12:30:00", at("13:00:00"), dropped("12:00:00", "12:00:00", 1, job.ReasonQuarantined)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := planResume(&tc.h, clock(tc.now))
			if err != nil {
				t.Fatal(err)
			}
			if p.next != tc.next || p.gap != tc.gap {
				t.Errorf("got %+v, want %+v %+v", p, tc.next, tc.gap)
			}
		})
	}
}

// An occurrence whose jitter is still to come has not passed.
func TestResumeInsideTheJitterGap(t *testing.T) {
	h := heldJob("0 * * * *", "12:00:00", "11:00:00")
	h.Def.Spec.Jitter = job.Duration(50 * time.Minute)
	sched, err := view.Compile(&h.Def.Spec, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	h.Place.Ready = h.Place.At + sched.Delay().Milliseconds()
	if sched.Delay() < time.Minute {
		t.Fatalf("the delay %s is too short for this test", sched.Delay())
	}
	h = paused(h)
	p, err := planResume(&h, h.State.ParkedReady-30_000)
	if err != nil {
		t.Fatal(err)
	}
	if p.next != (fsm.When{At: h.State.ParkedAt, Ready: h.State.ParkedReady}) || p.gap.Count != 0 {
		t.Errorf("got %+v", p)
	}
}

func TestGapIsCountedToALimit(t *testing.T) {
	h := paused(heldJob("* * * * * *", "12:00:00", ""))
	p, err := planResume(&h, clock("12:00:00")+1_000_000*1000)
	if err != nil {
		t.Fatal(err)
	}
	if p.gap.Count != view.CountLimit || !p.gap.AtLeast {
		t.Errorf("got %+v", p.gap)
	}
}

func TestPassed(t *testing.T) {
	jittered := heldJob("0 * * * *", "12:00:00", "11:00:00")
	jittered.Def.Spec.Jitter = job.Duration(time.Hour)
	broken := paused(heldJob("nonsense", "12:00:00", "11:00:00"))
	broken.State.Paused, broken.State.Quarantined = false, true
	canceled := dropped("12:00:00", "14:00:00", 3, job.ReasonDeleted)
	atLeast := dropped("12:00:00", "12:00:00", 1, job.ReasonQuarantined)
	atLeast.AtLeast = true
	for name, tc := range map[string]struct {
		h    view.Held
		now  string
		want fsm.Gap
	}{
		"to come":       {heldJob("0 * * * *", "12:00:00", "11:00:00"), "11:30:00", fsm.Gap{}},
		"nothing waits": {heldJob("@manual", "", ""), "11:30:00", fsm.Gap{}},
		"backlog":       {heldJob("0 * * * *", "12:00:00", "11:00:00"), "14:20:00", canceled},
		"paused": {paused(heldJob("0 * * * *", "12:00:00", "11:00:00")), "14:20:00",
			dropped("12:00:00", "14:00:00", 3, job.ReasonPaused)},
		"due before the pause": {pausedAt(heldJob("0 * * * *", "12:00:00", "11:00:00"), "12:30:00"), "14:20:00", canceled},
		"paused, a one-off still runs": {paused(heldJob("2027-03-01T12:00:00Z", "12:00:00", "")), "14:20:00",
			fsm.Gap{}},
		"paused, jitter to come": {paused(jittered), "12:00:00", fsm.Gap{}},
		"quarantined":            {broken, "14:20:00", atLeast},
	} {
		if got := tc.h.Passed(clock(tc.now)); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// What passes during a pause shows before it is recorded, and what was due before it does not.
func TestNotRunYet(t *testing.T) {
	backlog := pausedAt(heldJob("0 * * * *", "09:00:00", "08:00:00"), "13:30:00")
	backlog.State.Pauses.Add(store.Span{From: clock("10:30:00"), To: clock("11:30:00")})
	resumed := heldJob("0 * * * *", "09:00:00", "08:00:00")
	resumed.State.Pauses.Add(store.Span{From: clock("10:30:00"), To: clock("11:30:00")})
	resumed.State.Pauses.Add(store.Span{From: clock("12:10:00"), To: clock("12:20:00")})
	for name, tc := range map[string]struct {
		h    view.Held
		want []fsm.Gap
	}{
		"due before the pause": {backlog, []fsm.Gap{dropped("14:00:00", "15:00:00", 2, job.ReasonPaused),
			dropped("11:00:00", "11:00:00", 1, job.ReasonPaused)}},
		"resumed": {resumed, []fsm.Gap{dropped("11:00:00", "11:00:00", 1, job.ReasonPaused)}},
		"nothing was due": {pausedAt(heldJob("0 * * * *", "12:00:00", "11:00:00"), "11:30:00"),
			[]fsm.Gap{dropped("12:00:00", "15:00:00", 4, job.ReasonPaused)}},
	} {
		var got []fsm.Gap
		for _, r := range tc.h.NotRunYet(clock("15:30:00")) {
			got = append(got, fsm.Gap{First: int64(r.First), Last: int64(r.Last), Count: r.Count, Status: r.Status, Reason: r.Reason})
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// People may have so many runs of a job open and no more: the end of the job is one entry of the log.
func TestRoomForRuns(t *testing.T) {
	for _, tc := range []struct {
		active, waiting uint32
		more            int
		refused         bool
	}{{0, 0, job.MaxBackfill, false}, {1, maxOpenRuns - 1, 1, true}, {1, maxOpenRuns - 2, 1, false}, {maxOpenRuns, maxOpenRuns, 1, true}} {
		err := roomForRuns(&store.State{Active: tc.active, Waiting: tc.waiting}, tc.more)
		if (job.CodeOf(err) == job.CodeState) != tc.refused || (err == nil) == tc.refused {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

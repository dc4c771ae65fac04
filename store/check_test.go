package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// editState rewrites the state of a parked job.
func editState(id job.ID, edit func(*State)) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketParked)
		s, err := DecodeState(b.Get(u64(uint64(id))))
		if err != nil {
			return err
		}
		edit(&s)
		return b.Put(u64(uint64(id)), s.Encode())
	}
}

// editDue rewrites the occurrence of jobClaimed.
func editDue(edit func(*DueKey, *State)) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketDue)
		lane, _ := job.LaneOf("normal")
		k := Place{Lane: lane, Ready: 2005, At: 2000}.Due(jobClaimed)
		s, err := DecodeState(b.Get(k.Append(nil)))
		if err != nil {
			return err
		}
		if err := b.Delete(k.Append(nil)); err != nil {
			return err
		}
		edit(&k, &s)
		return b.Put(k.Append(nil), s.Encode())
	}
}

func editRun(k job.RunKey, edit func(*Row)) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketRuns)
		r, err := decodeRow(b.Get(appendRunKey(nil, k)))
		if err != nil {
			return err
		}
		edit(&r)
		return b.Put(appendRunKey(nil, k), r.encode())
	}
}

func editCounters(edit func(*Counters)) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		c, _, err := readMeta(tx)
		if err != nil {
			return err
		}
		edit(&c)
		return tx.Bucket(bucketMeta).Put(keyCounters, c.encode())
	}
}

func put(bucket, k, v []byte) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error { return tx.Bucket(bucket).Put(k, v) }
}

func del(bucket, k []byte) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error { return tx.Bucket(bucket).Delete(k) }
}

func audit(action string) []byte {
	w := writer{}
	(&Audit{At: 1, Action: action}).encodeTo(&w)
	return w.b
}

// Each kind of damage to the contents is found: by the check, or already by opening the file.
func TestCheckFindsPlantedCorruption(t *testing.T) {
	claimed := job.RunKey{Job: jobClaimed, At: 1000, Origin: job.OriginSchedule}
	held := job.RunKey{Job: jobPaused, At: 1400, Origin: job.OriginSchedule}
	waiting := job.RunKey{Job: jobPaused, At: 1500, Origin: job.OriginSchedule}
	pending := job.RunKey{Job: jobManual, At: 500, Origin: job.OriginManual}
	retrying := job.RunKey{Job: jobManual, At: 501, Origin: job.OriginManual}
	row := func(k job.RunKey) []byte { return appendRunKey(nil, k) }
	id := func(id job.ID) []byte { return u64(uint64(id)) }
	due := func(k job.RunKey, kind Kind, ready int64) []byte {
		return DueKey{Lane: 1, Ready: ready, Job: k.Job, Kind: kind, Origin: k.Origin, At: k.At}.Append(nil)
	}
	for _, c := range []struct {
		name  string
		plant func(*bolt.Tx) error
		want  string
	}{
		{"due in the past", editDue(func(_ *DueKey, s *State) { s.LastNominal = 2000 }), "is not after the last one"},
		{"due and paused", editDue(func(_ *DueKey, s *State) { s.Paused = true }), "is paused or in quarantine, and due"},
		{"due in another lane", editDue(func(k *DueKey, _ *State) { k.Lane = 0 }), "does not fit its state"},
		{"due in no lane", editDue(func(k *DueKey, s *State) { k.Lane, s.Lane = 9, 9 }), "is due in lane 9"},
		{"due before its time", editDue(func(k *DueKey, _ *State) { k.Ready = 1999 }), "does not fit its state"},
		{"due with another origin", editDue(func(k *DueKey, _ *State) { k.Origin = job.OriginManual }), "does not fit its state"},
		{"due twice", put(bucketDue, Place{Ready: 1, At: 1}.Due(jobClaimed).Append(nil), (&State{}).Encode()), "two occurrence entries"},
		{"due and parked", put(bucketParked, id(jobClaimed), (&State{}).Encode()), "both parked and due"},
		{"due with a bad state", put(bucketDue, Place{Lane: 2, Ready: 2005, At: 2000}.Due(jobClaimed).Append(nil), []byte{1, 2}), "state (due) cannot be read"},
		{"parked with a bad state", put(bucketParked, id(jobBad), []byte{1, 2}), "state (parked) cannot be read"},
		{"parked under a bad key", put(bucketParked, []byte{1}, (&State{}).Encode()), "corrupt record"},
		{"due under a bad key", put(bucketDue, []byte{1, 2}, nil), "corrupt record"},
		{"due of no kind", put(bucketDue, DueKey{Job: 1, Kind: 9}.Append(nil), []byte{1}), "has kind 9"},
		{"due without a run", put(bucketDue, due(claimed, KindRetry, 5), appendClass(1)), "no open run says so"},
		{"due at another time than its run", func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketDue)
			if err := b.Delete(due(pending, KindExtra, 500)); err != nil {
				return err
			}
			return b.Put(due(pending, KindExtra, 600), appendClass(1))
		}, "no open run says so"},
		{"due in another class", put(bucketDue, due(pending, KindExtra, 500), appendClass(7)), "of another class"},
		{"pending and not due", del(bucketDue, due(pending, KindExtra, 500)), "is pending but not in the due index"},
		{"retrying and not due", del(bucketDue, due(retrying, KindRetry, 700)), "is retrying but not in the due index"},

		{"token that cannot be read", put(bucketTokens, []byte("a"), []byte("{")), "corrupt record"},
		{"token of another id", put(bucketTokens, []byte("a"), []byte(`{"id":"b"}`)), "is about"},
		{"token without a secret", put(bucketTokens, []byte("abcdefghijkm"), []byte(`{"id":"abcdefghijkm","role":"admin"}`)), "makes no sense"},

		{"audit record that cannot be read", put(bucketAudit, u64(1), []byte{1}), "audit record 1 cannot be read"},
		{"audit record in the wrong ring", put(bucketAudit, u64(1), audit("token.create")), "is in the wrong ring"},
		{"audit record that is not counted", put(bucketGuarded, u64(1), audit("token.create")), "1 records in guarded, and the counters say 0"},
		{"audit record from the future", put(bucketAudit, u64(9), audit("job.create")), "newest audit record is 9"},
		{"audit record that is missing", func(tx *bolt.Tx) error {
			for _, seq := range []uint64{1, 3} {
				if err := tx.Bucket(bucketAudit).Put(u64(seq), audit("job.create")); err != nil {
					return err
				}
			}
			return editCounters(func(c *Counters) { c.AuditSeq, c.Audits = 3, 2 })(tx)
		}, "between audit records 1 and 3 there are 2"},

		{"run under a bad key", put(bucketRuns, []byte{1}, (&Row{}).encode()), "corrupt record"},
		{"run that cannot be read", put(bucketRuns, row(claimed), []byte{3, 0, 0, 1}), "cannot be read"},
		{"run in no state", editRun(claimed, func(r *Row) { r.Status = job.RunSucceeded }), "is open with status 16"},
		{"run claimed by no worker", editRun(claimed, func(r *Row) { r.Worker = "" }), "claimed by no worker"},
		{"run with a fence from the future", editRun(claimed, func(r *Row) { r.Fence = 10 }), "has fence 10"},
		{"runs with one fence", func(tx *bolt.Tx) error {
			k := job.RunKey{Job: jobClaimed, At: 900, Origin: job.OriginSchedule}
			return put(bucketRuns, row(k), (&Row{Status: job.RunClaimed, Attempt: 1, Class: 1, Fence: 9, Worker: "w"}).encode())(tx)
		}, "have the same fence"},
		{"run of no class", editRun(claimed, func(r *Row) { r.Class = 99 }), "unknown class 99"},
		{"run of no job", put(bucketRuns, row(job.RunKey{Job: 77, At: 1, Origin: 1}), (&Row{Status: job.RunWaiting, Class: 1}).encode()), "its job is gone"},
		{"run that its job does not know yet", put(bucketRuns, row(job.RunKey{Job: jobManual, At: 999, Origin: job.OriginManual}), (&Row{Status: job.RunWaiting, Class: 1}).encode()), "does not know that time yet"},
		{"run held without a pause", editState(jobPaused, func(s *State) { s.Paused = false }), "held but its job is not paused"},
		{"run held as nothing", editRun(held, func(r *Row) { r.Held = job.RunClaimed }), "held as claimed"},
		{"run held and claimed", editRun(claimed, func(r *Row) { r.Held = job.RunPending }), "held as pending"},
		{"runs that are not counted", del(bucketRuns, row(waiting)), "counts 1 active and 1 waiting runs, there are 1 and 0"},
		{"runs that wait behind nothing", func(tx *bolt.Tx) error {
			if err := editRun(held, func(r *Row) { r.Held = 0 })(tx); err != nil {
				return err
			}
			return editState(jobPaused, func(s *State) { s.Paused, s.ParkedAt, s.ParkedReady, s.Active, s.Waiting = false, 0, 0, 0, 2 })(tx)
		}, "wait behind nothing"},

		{"dead letter that cannot be read", put(bucketDead, u64(3), []byte{1}), "dead letter 3 cannot be read"},
		{"dead letter that is not counted", del(bucketDead, u64(3)), "counts 1 dead letters, there are 0"},
		{"dead letter under a bad key", put(bucketDead, []byte{1}, (&Dead{}).encode()), "a dead letter has a key of 1 bytes"},
		{"dead letter from the future", put(bucketDead, u64(99), (&Dead{}).encode()), "never given out"},
		{"dead letters in the counter", editCounters(func(c *Counters) { c.Dead = 5 }), "the counter says 5 dead letters"},

		{"job without a state", del(bucketParked, id(jobBad)), "has no state"},
		{"state without a job", del(bucketJobs, id(jobBad)), "there are 6 states and 5 jobs"},
		{"job from the future", editCounters(func(c *Counters) { c.NextJob = 5 }), "above the highest given out"},
		{"jobs in the counter", editCounters(func(c *Counters) { c.Jobs = 9 }), "the counter says 9 jobs"},
		{"definition that cannot be read", put(bucketJobs, id(jobBad), []byte{0xc1}), "definition cannot be read"},
		{"definition under a bad key", put(bucketJobs, []byte{1}, []byte{}), "a definition has a key of 1 bytes"},
		{"name that leads nowhere", put(bucketNames, []byte("\x00zzz"), id(77)), "there are 2 names and 1 named jobs"},
		{"name that leads elsewhere", put(bucketNames, []byte("\x00a"), id(jobBad)), "the name does not lead to it"},
		{"name that is gone", del(bucketNames, []byte("\x00a")), "the name does not lead to it"},
		{"class of another definition", func(tx *bolt.Tx) error {
			if err := put(bucketClasses, appendClass(2), []byte("shell\x00"))(tx); err != nil {
				return err
			}
			return editState(jobBad, func(s *State) { s.Class = 2 })(tx)
		}, "not that of its definition"},
		{"class that does not exist", editState(jobBad, func(s *State) { s.Class = 0 }), "not that of its definition"},
		{"classes with a hole", put(bucketClasses, appendClass(9), []byte("x")), "corrupt record"},
		{"policy of another definition", editState(jobBad, func(s *State) { s.Overlap = OverlapReplace }), "does not fit its definition"},
		{"occurrence put aside without a pause", editState(jobOneOff, func(s *State) { s.ParkedAt = 5 }), "is not paused and has an occurrence"},
		{"one-off that stays for ever", del(bucketDue, DueKey{Lane: 3, Ready: 9000, Job: jobOneOff, Kind: KindCleanup}.Append(nil)), "nothing will ever remove"},
		{"note without a quarantine", put(bucketNotes, id(jobPaused), []byte("x")), "not in quarantine"},

		{"history that cannot be read", put(bucketHistory, u64(1), []byte{1}), "history record 1 cannot be read"},
		{"history from the future", editCounters(func(c *Counters) { c.HistSeq = 1 }), "is out of order"},
		{"history that leads forward", put(bucketHistory, u64(1), (&Record{Prev: 3, Job: jobClaimed}).encode()), "record 1 is out of order"},
		{"history that leads to another job", put(bucketHistory, u64(histClaimed), (&Record{Prev: 1, Job: jobOneOff}).encode()), "not of that job"},
		{"history whose newest record is gone", del(bucketHistory, u64(histClaimed)), "newest history record 2 is gone"},
		{"history newer than the newest", put(bucketHistory, u64(3), (&Record{Job: jobClaimed}).encode()), "newer than the newest"},
		{"history with a fence from the future", put(bucketHistory, u64(1), (&Record{Job: jobClaimed, Fence: 99}).encode()), "never given out"},
		{"history that should be trimmed", editCounters(func(c *Counters) { c.HistFloor = 1 }), "should have been trimmed"},
		{"history trimmed beyond its end", editCounters(func(c *Counters) { c.HistFloor = 99 }), "trimmed up to 99"},

		{"request that never expires", put(bucketRequests, []byte("r2"), []byte("x")), "there are 2 requests and 1 expiries"},
		{"expiry of no request", put(bucketRequestExp, append(u64(1), "r9"...), nil), "leads to none"},

		{"notify of another definition", editState(jobBad, func(s *State) { s.Notify = NotifyFailure }), "does not fit its definition"},
		{"failing without notify", editState(jobBad, func(s *State) { s.Failing = true }), "is failing and has no notify"},
		{"notification of a job that is gone", put(bucketOutbox, noticeKey(77, 1), (&Notice{Kind: NotifyFailure}).encode()), "is gone or has no notify"},
		{"notification of a job without notify", put(bucketOutbox, noticeKey(jobBad, 1), (&Notice{Kind: NotifyFailure}).encode()), "is gone or has no notify"},
		{"notification that cannot be read", put(bucketOutbox, noticeKey(jobNotifies, 1), []byte{9}), "cannot be read"},
		{"notification under a bad key", put(bucketOutbox, []byte{9}, (&Notice{Kind: NotifyFailure}).encode()), "cannot be read"},
		{"notification from the future", put(bucketOutbox, noticeKey(jobNotifies, 99), (&Notice{Kind: NotifyFailure}).encode()), "never given out"},
		{"notification of no kind", put(bucketOutbox, noticeKey(jobNotifies, 1), (&Notice{Kind: 3}).encode()), "makes no sense"},
		{"notification sent and not sent", put(bucketOutbox, noticeKey(jobNotifies, 1), (&Notice{Kind: NotifyFailure, Sent: 1, Failed: 1}).encode()), "both sent and not sent"},
		{"notification sent without a claim", put(bucketOutbox, noticeKey(jobNotifies, 1), (&Notice{Kind: NotifyFailure, Trying: 1}).encode()), "was not claimed"},
		{"notification in the outbox and done", put(bucketOutbox, noticeKey(jobNotifies, 1), (&Notice{Kind: NotifyFailure, DoneAt: 5}).encode()), "done with and in the outbox"},
		{"last notification that cannot be read", put(bucketNotified, id(jobNotifies), []byte{9}), "last notification"},
		{"last notification of a job that is gone", put(bucketNotified, id(77), append(u64(1), (&Notice{Kind: NotifyFailure, DoneAt: 5}).encode()...)), "is gone or has no notify"},

		{"name that has not moved yet", put(bucketMeta, keySweep, (&sweep{}).encode()), "not where names of jobs as old are kept"},
		{"names of two jobs", func(tx *bolt.Tx) error {
			d, err := DecodeDefinition(tx.Bucket(bucketJobs).Get(id(jobClaimed)))
			must(t, err)
			v := d.Append(nil)
			return errors.Join(put(bucketMeta, keySweep, (&sweep{}).encode())(tx), put(bucketJobs, id(jobManual), v)(tx))
		}, "are both named"},
		{"sweep that cannot be read", put(bucketMeta, keySweep, []byte{1}), "corrupt record"},
		{"counters that cannot be read", put(bucketMeta, keyCounters, []byte{1}), "corrupt record"},
		{"info that cannot be read", put(bucketMeta, keyInfo, []byte("{")), "corrupt record"},
		{"info that is gone", del(bucketMeta, keyInfo), "corrupt record"},
		{"bucket that is gone", func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketNotes) }, `bucket "notes" is missing`},
		{"format of the future", put(bucketMeta, keyInfo, []byte(`{"format":99}`)), "start it with the newer carillon"},
		{"format of the past", put(bucketMeta, keyInfo, []byte(`{"format":0}`)), "has format 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			settled := quick
			settled.RecentNames = -1 // so that there is something in every bucket
			s, err := Open(path, settled)
			must(t, err)
			populate(t, s)
			must(t, s.Close())
			tamper(t, path, c.plant)
			problems, _, err := CheckFile(path)
			found := strings.Join(problems, "\n")
			if err != nil {
				found += err.Error()
			}
			if !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// The index in memory is compared as well.
func TestCheckComparesTheIndex(t *testing.T) {
	for name, spoil := range map[string]func(*index){
		"a job elsewhere":    func(x *index) { x.set(jobClaimed, packSpot(Place{Ready: 1, At: 1}, nil)) },
		"a job that is gone": func(x *index) { x.set(jobBad, spot{}) },
		"a job too many":     func(x *index) { x.set(5000, packSpot(Place{Parked: true}, &State{})) },
		"a run that is gone": func(x *index) { x.setOpen(jobManual, x.open[jobManual][:1]) },
		"a run in no state": func(x *index) {
			x.open[jobManual] = []OpenRef{{At: 500, Origin: 2, Status: job.RunClaimed}, x.open[jobManual][1]}
		},
		"another class":       func(x *index) { x.classes = append(x.classes, "x") },
		"counts of open runs": func(x *index) { x.openLen++ },
		"the outbox":          func(x *index) { x.notices++ },
		"a name that is gone": func(x *index) { x.names.recent.PopMin() },
		"a name too many":     func(x *index) { x.names.recent.Set("unknown", 5000) },
		"a name of another":   func(x *index) { x.names.recent.Set("a", 5000) },
		"another sweep":       func(x *index) { x.names.sweep.at = "b" },
	} {
		s := newTest(t)
		populate(t, s)
		spoil(s.idx)
		if problems, _, err := s.Check(); err != nil || len(problems) == 0 {
			t.Errorf("%s: not found (%v)", name, err)
		}
	}
	s := newTest(t)
	populate(t, s)
	s.count.Fence++
	if problems, _, _ := s.Check(); len(problems) == 0 {
		t.Error("counters: not found")
	}
}

func TestCheckCounts(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	_, st, err := s.Check()
	if err != nil || st.Jobs != 6 || st.Due != 4 || st.Parked != 5 || st.OpenRuns != 5 || st.History != 3 || st.Dead != 1 || st.Counters.Index != 7 {
		t.Fatalf("%+v %v", st, err)
	}
	must(t, s.Close())
	if _, _, err := s.Check(); err != ErrClosed {
		t.Fatal(err)
	}
	// While it is open elsewhere for reading, it can be checked; nothing is written.
	if problems, again, err := CheckFile(s.Path()); err != nil || len(problems) != 0 || again.Jobs != 6 {
		t.Fatalf("%v %q", err, problems)
	}
	if _, _, err := CheckFile(filepath.Join(t.TempDir(), "no.db")); err == nil {
		t.Fatal("a file that is not there")
	}
}

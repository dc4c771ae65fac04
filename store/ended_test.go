package store

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What statistics read of a record is what the record says.
func TestEndedIsTheRecord(t *testing.T) {
	for _, rec := range []Record{
		{Prev: 7, Job: 3, Recorded: 1_800_000_000_000, Namespace: job.DefaultNamespace, Status: job.RunSucceeded,
			At: 1_799_999_999_000, Origin: job.OriginSchedule, Attempt: 2, Fence: 99, Version: 4, Ready: 1_799_999_999_100,
			ClaimedAt: 1_799_999_999_200, StartedAt: 1_799_999_999_300, EndedAt: 1_799_999_999_900, Worker: "w", Key: "k",
			Error: "e", Output: "o"},
		{Job: 4, Recorded: 1_800_000_000_001, Namespace: "team-a", Status: job.RunExpired, Reason: job.ReasonDeadline, At: 5,
			Origin: job.OriginManual},
		{Job: 5, Recorded: 1_800_000_000_002, Namespace: "team-a", Interval: Interval{First: 1, Last: 9, Count: 3,
			Status: job.RunMissed, Reason: job.ReasonOutage}},
	} {
		w := writer{}
		rec.encodeTo(&w)
		whole, err := decodeRecord(w.b)
		if err != nil {
			t.Fatal(err)
		}
		want := Ended{Job: whole.Job, Recorded: whole.Recorded, Namespace: whole.Namespace, Status: whole.Status,
			Reason: whole.Reason, Attempt: whole.Attempt, Count: whole.Interval.Count, ClaimedAt: whole.ClaimedAt,
			StartedAt: whole.StartedAt, EndedAt: whole.EndedAt, Ready: whole.Ready}
		var got Ended
		if err := got.decode(w.b); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		if err := got.decode(w.b[:12]); err == nil {
			t.Error("half a record is read")
		}
	}
}

// BenchmarkDecodeEnded is what statistics pay for a record, beside what all of it costs.
func BenchmarkDecodeEnded(b *testing.B) {
	w := writer{}
	rec := Record{Prev: 7, Job: 3, Recorded: 1_800_000_000_000, Namespace: job.DefaultNamespace, Status: job.RunFailed,
		At: 1_799_999_999_000, Origin: job.OriginSchedule, Attempt: 2, Fence: 99, Version: 4, Ready: 1_799_999_999_100,
		ClaimedAt: 1_799_999_999_200, StartedAt: 1_799_999_999_300, EndedAt: 1_799_999_999_900, Worker: "worker-1",
		Error: "connection refused", Output: strings.Repeat("line\n", 100)}
	rec.encodeTo(&w)
	b.Run("ended", func(b *testing.B) {
		var e Ended
		for b.Loop() {
			if err := e.decode(w.b); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("record", func(b *testing.B) {
		for b.Loop() {
			if _, err := decodeRecord(w.b); err != nil {
				b.Fatal(err)
			}
		}
	})
}

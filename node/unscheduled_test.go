package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// loseNext takes the next occurrence of a job out of the state of a stopped node.
func loseNext(t *testing.T, dir string, id job.ID) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, datadir.StateFile), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	number := binary.BigEndian.AppendUint64(nil, uint64(id))
	err = db.Update(func(tx *bolt.Tx) error {
		c := tx.Bucket([]byte("due")).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if bytes.Equal(k[9:17], number) {
				return errors.Join(tx.Bucket([]byte("parked")).Put(number, bytes.Clone(v)), c.Delete())
			}
		}
		return errors.New("it is not due")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A job whose next occurrence is gone is never due, so nothing else would say that it stands still: metrics, status and
// the check of a stopped node do, and none of them of the jobs that rightly have none.
func TestJobWithoutANextOccurrenceIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir)
	year := time.Now().UTC().Year() + 1
	later := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	spec := func(name, schedule string, more ...any) map[string]any {
		s := map[string]any{"name": name, "type": "queue", "schedule": schedule, "payload": map[string]any{"queue": "q"}}
		for i := 0; i < len(more); i += 2 {
			s[more[i].(string)] = more[i+1]
		}
		return s
	}
	lost := n.create(spec("payroll", "0 9 1 * *"))
	n.create(spec("healthy", "0 9 1 * *"))
	n.create(spec("paused", "0 9 1 * *"))
	n.create(spec("manual", "@manual"))
	n.create(spec("canceled", later))
	n.create(spec("once", later))
	n.call("POST", "/api/v1/jobs/paused:pause", nil)
	n.call("POST", "/api/v1/jobs/canceled:cancel", nil)
	if j := n.get("canceled"); j.Status != job.StatusCompleted {
		t.Fatalf("it was canceled: %+v", j)
	}
	n.stop()
	check := func(want ...string) {
		t.Helper()
		res, err := datadir.Check(dir)
		if err != nil || len(res.Problems) != len(want) {
			t.Fatalf("%q, %v; want %q", res.Problems, err, want)
		}
		for i, w := range want {
			if !strings.Contains(res.Problems[i], w) {
				t.Errorf("%q, want %q", res.Problems[i], w)
			}
		}
	}
	check()
	loseNext(t, dir, lost.ID)
	check("(payroll) has no next occurrence; it should have one at ")

	n = start(t, dir)
	said := func(count string) func() bool {
		return func() bool {
			return strings.Contains(string(n.call("GET", "/metrics", nil).body),
				"\ncarillon_jobs_unscheduled{group=\"0\"} "+count+"\n")
		}
	}
	n.eventually("the metric counts it", said("1"))
	tr := findTrouble(ok[wire.Status](n, "GET", "/api/v1/status", nil).Troubles, wire.TroubleUnscheduled, "")
	if tr == nil || !strings.Contains(tr.Text, "1 job has no next occurrence, or two: ") ||
		!strings.Contains(tr.Text, lost.ID.String()+" (payroll) ") || strings.Contains(tr.Text, "more") ||
		!strings.Contains(tr.Remedy, "schedule") {
		t.Errorf("status says %+v", tr)
	}
	n.call("PATCH", "/api/v1/jobs/payroll", map[string]any{"schedule": "1 9 1 * *"}) // as the remedy says
	n.stop()
	check()
	n = start(t, dir)
	n.eventually("there is none", said("0"))
}

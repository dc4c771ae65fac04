package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// flipAll changes one bit of some bytes wherever a file has them: in the page that counts, and in those that bbolt has
// left behind.
func flipAll(t *testing.T, path, where string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(where)) {
		t.Fatalf("%q is not in %s", where, path)
	}
	changed := []byte(where)
	changed[at] ^= 1
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(where), changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An entry of the log that is not what was written is neither applied nor sent: the replica stops, says so, and stays
// stopped. The others go on.
func TestReplicaWithADamagedLogStops(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	odd := c.others(lead)[0]
	lead.create(unclaimedJob("the-job-that-is-damaged"))
	odd.eventually("it has the job", func() bool { return odd.has("the-job-that-is-damaged") })
	odd.stop()
	flipAll(t, filepath.Join(odd.cfg.DataDir, datadir.LogFile), "the-job-that-is-damaged", 3)
	if checked, err := datadir.Check(odd.cfg.DataDir); err != nil || len(checked.Problems) != 1 ||
		!strings.Contains(checked.Problems[0], "of the log is damaged") {
		t.Errorf("%+v, %v", checked.Problems, err)
	}
	for range 2 {
		odd.again(t)
		odd.eventually("it stops", func() bool { return odd.group.standing.Why() != nil })
		if s := odd.group.standing.Why(); s.Reason != datadir.StoppedDamaged || !strings.Contains(s.Text, "entry ") {
			t.Errorf("%+v", s)
		}
		if err := odd.service.Ready(); job.CodeOf(err) != job.CodeStopped {
			t.Errorf("ready: %v", err)
		}
		if tr, ok := odd.troubleOf(wire.TroubleStopped, odd.id()); !ok {
			t.Errorf("it does not say so: %+v, %+v", tr, odd.status("").Troubles)
		}
		lead.eventually("the leader says so", func() bool {
			_, ok := lead.troubleOf(wire.TroubleStopped, odd.id())
			return ok
		})
		lead.create(unclaimedJob(""))
		odd.stop()
	}
}

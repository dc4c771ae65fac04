package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// damageState changes a bit of a value in the state file of a node that runs, as a disk or the memory does.
func (m *member) damageState(where string, at int) {
	m.t.Helper()
	path := filepath.Join(m.cfg.DataDir, datadir.StateFile)
	data, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	found := 0
	for from := 0; ; found++ {
		i := bytes.Index(data[from:], []byte(where))
		if i < 0 {
			break
		}
		from += i + at
		if _, err := f.WriteAt([]byte{data[from] ^ 1}, int64(from)); err != nil {
			m.t.Fatal(err)
		}
	}
	if found == 0 {
		m.t.Fatalf("%q is not in %s", where, path)
	}
}

// scrubNow has the leader look at the whole state, and waits until it has.
func (c *cluster) scrubNow() {
	c.t.Helper()
	began := time.Now()
	c.leader().group.scrub.Start()
	c.leader().eventually("the state is looked at", func() bool {
		p := c.leader().group.scrub.Progress()
		return !p.Running && p.Ended.After(began)
	})
}

// A replica whose state is not that of most stops and names the place, whether it follows or leads. Nobody else does.
func TestReplicaWithADamagedStateStops(t *testing.T) {
	realTime(t)
	t.Parallel()
	for _, leads := range []bool{false, true} {
		c := startJoined(t, 3)
		odd := c.leader()
		if !leads {
			odd = c.others(odd)[0]
		}
		for i := range 50 {
			j := unclaimedJob(fmt.Sprintf("job-%d", i))
			j["payload"] = map[string]any{"queue": "q", "data": fmt.Sprintf("this is the text of job %d;", i)}
			c.leader().create(j)
		}
		for _, m := range c.members {
			m.eventually("it has the jobs", func() bool { return m.has("job-49") })
		}
		c.scrubNow()
		for _, m := range c.members {
			if why := m.group.standing.Why(); why != nil || m.group.scrub.Last() == nil {
				t.Fatalf("%s: %+v", m.id(), why)
			}
		}
		odd.damageState("this is the text of job 17;", 2)
		c.leader().group.scrub.Start()
		odd.eventually("it stops", func() bool { return odd.group.standing.Why() != nil })
		if s := odd.group.standing.Why(); s.Reason != datadir.StoppedDamaged || !strings.Contains(s.Text, "between ") {
			t.Errorf("%+v", s)
		}
		if err := odd.service.Ready(); job.CodeOf(err) != job.CodeStopped {
			t.Errorf("ready: %v", err)
		}
		rest := &cluster{t: t, members: c.others(odd)}
		rest.leader().create(unclaimedJob("one-more"))
		for _, m := range rest.members {
			m.eventually("it has the job", func() bool { return m.has("one-more") })
			if why := m.group.standing.Why(); why != nil {
				t.Errorf("%s stopped too: %+v", m.id(), why)
			}
		}
	}
}

// Of two that differ nobody can know which is right: both say so, and go on.
func TestTwoStatesThatDifferAreShown(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 2)
	lead := c.leader()
	j := unclaimedJob("a")
	j["payload"] = map[string]any{"queue": "q", "data": "this is the text of a;"}
	lead.create(j)
	other := c.others(lead)[0]
	other.eventually("it has the job", func() bool { return other.has("a") })
	other.damageState("this is the text of a;", 2)
	lead.group.scrub.Start()
	for _, m := range c.members {
		m.eventually("it says so", func() bool {
			_, ok := m.troubleOf(wire.TroubleStatesDiffer, "")
			return ok
		})
		if why := m.group.standing.Why(); why != nil {
			t.Errorf("%s: %+v", m.id(), why)
		}
	}
	lead.create(unclaimedJob("b"))
}

package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// crew is many workers that are no nodes, each in a process of its own, of three kinds. They come and go while they
// work.
type crew struct {
	t       *testing.T
	binary  string
	addrs   string // of all nodes
	lease   time.Duration
	rng     *rand.Rand
	members []*member
	outages []harness.Outage
	counts  struct{ added, killed, back, stopped int }
}

// member is one of them.
type member struct {
	*process
	name, kind string
	dir        string // where it remembers who it is, empty: nowhere
}

// The kinds, and the queues that the two of them without an executor of their own take runs from.
const (
	kindHTTP    = "http"
	kindCommand = "command"
	kindPull    = "pull"
)

// command does what an http job does, with the data and the environment that a command gets.
const command = `exec curl -sS -f -o /dev/null -X POST -H "Idempotency-Key: $CARILLON_IDEMPOTENCY_KEY" -H "Carillon-Job: $CARILLON_JOB" -H "Carillon-Run: $CARILLON_RUN" \
 -H "Carillon-Scheduled-At: $CARILLON_SCHEDULED_AT" -H "Carillon-Attempt: $CARILLON_ATTEMPT" -H "Carillon-Fence: $CARILLON_FENCE" "$(sed 's/.*"url":"\([^"]*\)".*/\1/')"`

// add starts a worker. With a directory it is one that was there before.
func (c *crew) add(kind, name, dir string) *member {
	c.t.Helper()
	m := &member{kind: kind, name: name, dir: dir}
	if name == "" {
		c.counts.added++
		m.name = fmt.Sprintf("%s-%d", kind, c.counts.added)
	}
	if dir == "" && kind != kindPull && c.rng.IntN(2) == 0 {
		m.dir = c.t.TempDir()
	}
	args := []string{"worker", "--join", c.addrs, "--name", m.name}
	switch kind {
	case kindHTTP:
		args = append(args, "--executors", "http", "--tags", "crew=away", "--slots", "8", "--egress-allow", "loopback")
	case kindCommand:
		args = append(args, "--executors", "queue", "--queues", kindCommand, "--command", command, "--slots", "4")
	case kindPull:
		exe, err := os.Executable()
		if err != nil {
			c.t.Fatal(err)
		}
		m.process = spawn(c.t, []string{crewEnv + "=" + m.name + "," + c.addrs}, exe, "-test.run=^$")
		c.members = append(c.members, m)
		return m
	}
	if m.dir != "" {
		args = append(args, "--state-dir", m.dir)
	}
	m.process = spawn(c.t, nil, c.binary, args...)
	c.members = append(c.members, m)
	return m
}

// leave takes one out of the crew.
func (c *crew) leave() *member {
	i := c.rng.IntN(len(c.members))
	m := c.members[i]
	c.members = append(c.members[:i], c.members[i+1:]...)
	return m
}

// kill ends one with SIGKILL. Another one comes at once: the same again if it has a place to remember who it is, or a
// new one.
func (c *crew) kill() {
	c.t.Helper()
	m := c.leave()
	select {
	case <-m.done:
		c.t.Fatalf("%s ended by itself:\n%s", m.name, m.said())
	default:
	}
	o := harness.Outage{Node: m.name, Sent: time.Now(), Why: "a worker"}
	m.signal(syscall.SIGKILL)
	m.exit()
	o.Dead = time.Now()
	o.Ready = o.Dead.Add(2 * c.lease) // until then the leader may count on it
	c.outages = append(c.outages, o)
	c.counts.killed++
	if m.dir != "" {
		c.counts.back++
		c.add(m.kind, m.name, m.dir)
	} else {
		c.add(m.kind, "", "")
	}
}

// stop ends one in good order: it must lose nothing.
func (c *crew) stop(m *member) {
	c.t.Helper()
	m.signal(syscall.SIGTERM)
	code := m.exit()
	if how, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && how.Signaled() &&
		how.Signal() == syscall.SIGTERM && m.said() == "" {
		return // to listen to signals is the first that it does: it had been started just now, and had not got so far
	}
	if code != 0 {
		c.t.Errorf("%s exits with %d at SIGTERM: %s", m.name, code, m.said())
	}
	c.counts.stopped++
}

const crewEnv = "CARILLON_PROOF_CREW"

// crewMain is this test binary as a worker of a queue with a handler in Go: it calls the target as an http job would.
func crewMain(args string) int {
	a := strings.Split(args, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	const slots = 6
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slots}}
	err := client.Worker{Addrs: a[1:], Name: a[0], Queue: kindPull, Concurrency: slots,
		Handler: func(ctx context.Context, run *client.Run) error {
			var data struct{ URL string }
			if err := json.Unmarshal(run.Data, &data); err != nil {
				return client.Permanent(err)
			}
			rq, err := http.NewRequestWithContext(ctx, http.MethodPost, data.URL, nil)
			if err != nil {
				return client.Permanent(err)
			}
			for k, v := range map[string]string{"Idempotency-Key": run.Key, "Carillon-Job": run.JobID.String(),
				"Carillon-Run": run.RunID, "Carillon-Scheduled-At": run.ScheduledAt.String(),
				"Carillon-Attempt": strconv.Itoa(run.Attempt), "Carillon-Fence": strconv.FormatUint(run.Fence, 10)} {
				rq.Header.Set(k, v)
			}
			res, err := hc.Do(rq)
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode/100 != 2 {
				return fmt.Errorf("the target says %s", res.Status)
			}
			return nil
		}}.Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/crash"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
	"github.com/carillon-scheduler/carillon/store"
)

// nameCase is a process that dies at one step of a create or a rename whose name has its home in another group.
type nameCase struct {
	point  string
	rename bool
	repeat bool // the client asks again, under the same key
	all    bool // all processes die, not that one alone
}

func (c nameCase) String() string {
	s := c.point
	if c.rename {
		s += " rename"
	}
	if c.repeat {
		s += " repeated"
	}
	if c.all {
		s += " all"
	}
	return s
}

// cleaning says that the point is one of the clean-up of a home, which has something to do when a create was cut off.
func (c nameCase) cleaning() bool {
	switch c.point {
	case crash.HomeAsks, crash.JobAborted, crash.HomeHeard, crash.HomeSettled:
		return true
	}
	return false
}

func nameCases() (all []nameCase) {
	both := func(c nameCase) {
		all = append(all, c)
		c.repeat, c.all = !c.repeat, !c.all
		all = append(all, c)
	}
	for i, p := range []string{crash.HomeReserved, crash.NameGranted, crash.JobCreated, crash.BeforeTell,
		crash.HomeConfirmed, crash.AfterTell} {
		both(nameCase{point: p, repeat: i%2 == 0})
	}
	for i, p := range []string{crash.HomeReserved, crash.NameGranted, crash.JobRenamed, crash.BeforeTell,
		crash.HomeConfirmed, crash.BeforePay, crash.HomeReleased, crash.AfterPay} {
		both(nameCase{point: p, rename: true, repeat: i%2 == 0})
	}
	for i, p := range []string{crash.HomeAsks, crash.JobAborted, crash.HomeHeard, crash.HomeSettled} {
		both(nameCase{point: p, repeat: i%2 == 0})
	}
	// Undecided and not asked for again: the clean-up gives the name back.
	return append(all, nameCase{point: crash.HomeReserved, all: true}, nameCase{point: crash.NameGranted, all: true},
		nameCase{point: crash.NameGranted, rename: true, all: true})
}

const nameGroups = 3

// nameKiller is a cluster of several groups in which processes die while names are taken.
type nameKiller struct {
	t     *testing.T
	cl    *harness.Cluster
	arms  string
	names int // given so far
	asks  int
	used  []string
	turn  int
	lines []string // queues, one of each group
}

// TestKilledWhileANameIsTaken ends processes by kill -9 at the steps of creates and renames whose names have their homes
// in other groups, and of the clean-up after them. Whether the client asks again or not: a name is one job's, what is
// not decided is 503 to others and never 409, and in the end every name is free that no job has.
func TestKilledWhileANameIsTaken(t *testing.T) {
	scenario(t)
	k := &nameKiller{t: t, arms: t.TempDir()}
	k.cl = groupCluster(t, harness.Build(t, "carillon_crash"), 3, nameGroups, func(n *harness.Node) {
		n.Wrap = []string{"env", "CARILLON_CRASH=" + k.arms, "CARILLON_SOON=20"}
	}, "--executors", "http")
	k.pin()
	for _, c := range nameCases() {
		began := time.Now()
		k.one(c)
		t.Logf("%s: %s", c, time.Since(began).Round(100*time.Millisecond))
		if t.Failed() {
			return
		}
	}
	k.finish()
}

// groupCluster starts a cluster whose jobs are in several groups, and waits until all of those take jobs.
func groupCluster(t *testing.T, binary string, nodes, groups int, change func(*harness.Node),
	flags ...string) *harness.Cluster {
	t.Helper()
	cl := harness.NewClusterAt(t, binary, nodes, func(i int, n *harness.Node) {
		if change(n); i == 0 {
			n.Flags = append(n.Flags[:len(n.Flags):len(n.Flags)], "--groups", fmt.Sprint(groups))
		}
	}, flags...)
	harness.Eventually(t, harness.ReadyLimit, "all groups have leaders and three members", func() bool {
		return groupsLed(cl, groups) == nil
	})
	return cl
}

// groupsLed says what is missing for every group to have a leader, as all living nodes see it.
func groupsLed(cl *harness.Cluster, groups int) error {
	for _, n := range cl.Living() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := n.Client.Status(ctx)
		cancel()
		if err != nil {
			return err
		}
		if len(s.Groups) != groups+1 {
			return fmt.Errorf("%s knows of %d groups", n.ID, len(s.Groups))
		}
		for _, g := range s.Groups {
			if g.Leader == "" || g.Problem != "" || len(g.Members) < min(3, len(cl.Nodes)) {
				return fmt.Errorf("%s: group %d: leader %q, members %v, %s", n.ID, g.ID, g.Leader, g.Members, g.Problem)
			}
		}
	}
	return nil
}

// pin gives each group a queue. That is reserved, too, and shall not be what a process dies over.
func (k *nameKiller) pin() {
	k.t.Helper()
	for group := uint32(1); group <= nameGroups; group++ {
		for i := 0; ; i++ {
			q := fmt.Sprintf("queue-%d", i)
			if job.HomeOf(job.NameQueue, job.DefaultNamespace, q, nameGroups) == group {
				k.lines = append(k.lines, q)
				break
			}
		}
		name := k.away(group)
		k.taken(name, k.mustCreate(k.spec(name, k.lines[group-1], "pin")).ID)
	}
}

// queue is one of another group each time.
func (k *nameKiller) queue() (name string, group uint32) {
	k.asks++
	i := k.asks % nameGroups
	return k.lines[i], uint32(i + 1)
}

// away is a new name that has its home elsewhere than in a group.
func (k *nameKiller) away(group uint32) string {
	for {
		k.names++
		name := fmt.Sprintf("name-%d", k.names)
		if job.HomeOf(job.NameJob, job.DefaultNamespace, name, nameGroups) != group {
			k.used = append(k.used, name)
			return name
		}
	}
}

// node is any that lives, others in turn.
func (k *nameKiller) node() *harness.Node {
	k.turn++
	living := k.cl.Living()
	return living[k.turn%len(living)]
}

func (k *nameKiller) key() string {
	k.asks++
	return fmt.Sprintf("key-%d", k.asks)
}

// spec is a job of a queue, which is in the queue's group and not at the home of its name.
func (k *nameKiller) spec(name, queue, by string) job.Spec {
	return job.Spec{Name: name, Type: job.TypeQueue, Schedule: "@manual", Tags: map[string]string{"by": by},
		Payload: json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queue))}
}

func (k *nameKiller) create(n *harness.Node, spec job.Spec, key string) (job.Job, error) {
	ctx, cancel := context.WithTimeout(client.WithIdempotencyKey(context.Background(), key), 15*time.Second)
	defer cancel()
	return n.Client.CreateJob(ctx, spec)
}

// open says that an error leaves it open what is done, or says that nothing can be decided now.
func open(err error) bool {
	var known *job.Error
	if !errors.As(err, &known) {
		return err != nil
	}
	switch known.Code {
	case job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable, job.CodeNotLeader:
		return true
	}
	return false
}

// until asks again and again, under one key, until the answer is definite.
func (k *nameKiller) until(what string, ask func(n *harness.Node) (job.Job, error)) (j job.Job, err error) {
	k.t.Helper()
	harness.Eventually(k.t, time.Minute, what+": an answer", func() bool {
		j, err = ask(k.node())
		if open(err) {
			time.Sleep(50 * time.Millisecond)
			return false
		}
		return true
	})
	return j, err
}

func (k *nameKiller) mustCreate(spec job.Spec) job.Job {
	k.t.Helper()
	key := k.key()
	j, err := k.until("create "+spec.Name, func(n *harness.Node) (job.Job, error) { return k.create(n, spec, key) })
	if err != nil {
		k.t.Fatalf("create %s: %v", spec.Name, err)
	}
	return j
}

func (k *nameKiller) arm(point string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.arms, point), nil, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// died waits until a process has died at a point, kills all others if it is to, and looks at what they left.
func (k *nameKiller) died(c nameCase) (dead []*harness.Node) {
	k.t.Helper()
	since := time.Now()
	harness.Eventually(k.t, time.Minute, "a process dies at "+c.point, func() bool {
		for _, n := range k.cl.Nodes {
			if n.Ended() != nil {
				dead = append(dead, n)
			}
		}
		return len(dead) > 0
	})
	if len(dead) != 1 {
		k.t.Fatalf("%s: %d processes died", c, len(dead))
	}
	if _, err := os.Stat(filepath.Join(k.arms, c.point)); err == nil {
		k.t.Fatalf("%s: %s died somewhere else", c, dead[0].ID)
	}
	dead[0].Died(c.String(), since)
	if c.all {
		for _, n := range k.cl.Living() {
			n.Kill(c.String())
			dead = append(dead, n)
		}
	}
	for _, n := range dead {
		if err := harness.Check(n.Binary, n.Dir); err != nil && !onlyBehind(err.Error()) {
			k.t.Errorf("%s: as %s died: %v", c, n.ID, err)
		}
	}
	return dead
}

// onlyBehind says that a check found nothing but names of which the node may have heard in one of two groups only when
// it died. At the end, when all have caught up, it must find nothing at all.
func onlyBehind(found string) bool {
	for line := range strings.Lines(found) {
		line = strings.TrimSpace(line)
		if (strings.HasPrefix(line, "job ") || strings.HasPrefix(line, "group ")) &&
			!strings.Contains(line, "or this node had not caught up with one of the two groups when it stopped") {
			return false
		}
	}
	return strings.Contains(found, "or this node had not caught up")
}

// revive starts processes, all of them before it waits for the first: one alone is never ready.
func (k *nameKiller) revive(dead []*harness.Node) {
	k.t.Helper()
	for _, n := range dead {
		if err := n.Launch(); err != nil {
			k.t.Fatal(err)
		}
	}
	for _, n := range dead {
		if err := n.AwaitReady(); err != nil {
			k.t.Fatalf("%s: %v\n%s", n.ID, err, n.LogTail(30))
		}
	}
}

// answer is what a client was told.
type answer struct {
	job job.Job
	err error
}

// one has a process die at one step and looks at what becomes of the name.
func (k *nameKiller) one(c nameCase) {
	t := k.t
	t.Helper()
	queue, group := k.queue()
	name, key, former := k.away(group), k.key(), ""
	first := k.spec(name, queue, key)
	ask := func(n *harness.Node) (job.Job, error) { return k.create(n, first, key) }
	if c.rename {
		former = k.away(group)
		j := k.mustCreate(k.spec(former, queue, key))
		if job.HomeOf(job.NameJob, job.DefaultNamespace, former, nameGroups) == uint32(j.ID.Group()) {
			t.Fatalf("%s is at home in its group", former)
		}
		k.taken(former, j.ID) // its home knows: nothing of it is under way any more
		ask = func(n *harness.Node) (job.Job, error) {
			ctx, cancel := context.WithTimeout(client.WithIdempotencyKey(context.Background(), key), 15*time.Second)
			defer cancel()
			return n.Client.UpdateJob(ctx, j.ID.String(), first, j.Version)
		}
	}
	step := c
	if c.cleaning() { // what it is to clean up
		step = nameCase{point: crash.NameGranted, all: true}
	}
	k.arm(step.point)
	asked := make(chan answer, 1)
	go func(n *harness.Node) {
		j, err := ask(n)
		asked <- answer{j, err}
	}(k.node())
	dead := k.died(step)
	if c.cleaning() {
		k.arm(c.point)
		<-asked // or it could come to a process that lives again
		k.revive(dead)
		dead = k.died(c)
	}
	k.revive(dead)
	var got answer
	if !c.cleaning() {
		got = <-asked
	} else {
		got.err = errors.New("cut off")
	}
	if got.err != nil && !open(got.err) && !c.cleaning() {
		t.Fatalf("%s: the request is answered with %v", c, got.err)
	}
	if c.repeat {
		j, err := k.until("repeated "+c.String(), ask)
		if err != nil {
			t.Fatalf("%s: repeated: %v", c, err)
		}
		if got.err == nil && got.job.ID != j.ID {
			t.Errorf("%s: one request made %s and %s", c, got.job.ID, j.ID)
		}
		got = answer{j, nil}
	}

	// Another request for the name: it hears nothing before that is decided, and then the truth.
	// It is for the third group, which knows nothing but what the home says.
	home := job.HomeOf(job.NameJob, job.DefaultNamespace, name, nameGroups)
	rival := k.spec(name, k.lines[1+2+3-group-home-1], "rival")
	rivalKey := k.key()
	j, err := k.until("another request after "+c.String(),
		func(n *harness.Node) (job.Job, error) { return k.create(n, rival, rivalKey) })
	has := k.named(name)
	t.Logf("%s: %s died; the request: %s; another one: %s", c, dead[0].ID, inAWord(got.err), inAWord(err))
	switch {
	case err == nil && got.err == nil:
		t.Errorf("%s: two jobs are called %s: %s and %s", c, name, got.job.ID, j.ID)
	case err == nil && has.ID != j.ID:
		t.Errorf("%s: %s was created as %s, and is %s", c, name, j.ID, has.ID)
	case err != nil && job.CodeOf(err) != job.CodeDuplicateName:
		t.Errorf("%s: another request is answered with %v", c, err)
	case err != nil && has.Tags["by"] != key:
		t.Errorf("%s: another request hears that %s is taken (%v), and it is %+v", c, name, err, has)
	case err != nil && got.err == nil && has.ID != got.job.ID:
		t.Errorf("%s: %s was given to %s, and is %s", c, name, got.job.ID, has.ID)
	}
	if c.rename && err != nil { // it was renamed: the former name is free
		k.free(former)
	}
}

// inAWord is an answer in short.
func inAWord(err error) string {
	if err == nil {
		return "done"
	}
	return string(job.CodeOf(err))
}

// taken waits until a request for a name hears that a job has it.
func (k *nameKiller) taken(name string, id job.ID) {
	k.t.Helper()
	key := k.key()
	queue, _ := k.queue()
	_, err := k.until(name+" is taken", func(n *harness.Node) (job.Job, error) {
		return k.create(n, k.spec(name, queue, "rival"), key)
	})
	if job.CodeOf(err) != job.CodeDuplicateName {
		k.t.Fatalf("%s, which %s has: %v", name, id, err)
	}
}

// free waits until a name that no job has any more can be given to another.
func (k *nameKiller) free(name string) {
	k.t.Helper()
	queue, _ := k.queue()
	key := k.key()
	harness.Eventually(k.t, time.Minute, name+" is free", func() bool {
		_, err := k.create(k.node(), k.spec(name, queue, "next"), key)
		if err == nil {
			return true
		}
		if !open(err) { // it is an answer; the next try is another request
			key = k.key()
		}
		time.Sleep(50 * time.Millisecond)
		return false
	})
}

// named is the job that has a name, as the cluster says and its list.
func (k *nameKiller) named(name string) (j job.Job) {
	k.t.Helper()
	j, err := k.until("get "+name, func(n *harness.Node) (job.Job, error) {
		return n.Client.GetJob(context.Background(), name)
	})
	if err != nil {
		k.t.Fatalf("get %s: %v", name, err)
	}
	for _, other := range k.list() {
		if other.Name == name && other.ID != j.ID {
			k.t.Errorf("%s and %s are both called %s", j.ID, other.ID, name)
		}
	}
	return j
}

func (k *nameKiller) list() (all []job.Job) {
	k.t.Helper()
	harness.Eventually(k.t, harness.ReadyLimit, "a list of all jobs", func() bool {
		all = nil
		for q := (client.JobQuery{Limit: 500}); ; {
			page, err := k.node().Client.ListJobs(context.Background(), q)
			if err != nil {
				return false
			}
			all = append(all, page.Jobs...)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				return true
			}
		}
	})
	return all
}

// finish deletes all jobs, gives all names to others, and looks at what the groups still keep.
func (k *nameKiller) finish() {
	t := k.t
	t.Helper()
	seen := map[string]job.ID{}
	for _, j := range k.list() {
		if other, twice := seen[j.Name]; twice {
			t.Errorf("%s and %s are both called %s", other, j.ID, j.Name)
		}
		seen[j.Name] = j.ID
		if _, err := k.until("delete", func(n *harness.Node) (job.Job, error) {
			return job.Job{}, n.Client.DeleteJob(context.Background(), j.ID.String(), 0)
		}); err != nil && job.CodeOf(err) != job.CodeNotFound {
			t.Errorf("delete %s: %v", j.ID, err)
		}
	}
	for _, name := range k.used {
		k.free(name)
	}
	harness.Eventually(t, 3*time.Minute, "nothing is pending or owed", func() bool {
		for _, n := range k.cl.Nodes {
			n.Stop()
		}
		left := keptNames(t, k.cl.Nodes)
		if len(left) == 0 {
			return true
		}
		t.Logf("still kept: %v", left)
		k.revive(k.cl.Nodes)
		time.Sleep(time.Second)
		return false
	})
	for _, n := range k.cl.Nodes {
		if err := harness.Check(n.Binary, n.Dir); err != nil {
			t.Errorf("%s: %v", n.ID, err)
		}
	}
}

// keptNames are the names that groups of stopped nodes have down as pending or owed. Replicas may have stopped at
// different entries; one that has heard the end of it is enough.
func keptNames(t *testing.T, nodes []*harness.Node) (left []string) {
	t.Helper()
	for group := uint32(1); group <= nameGroups; group++ {
		var newest uint64
		var of []string
		for _, n := range nodes {
			path := filepath.Join(n.Dir, datadir.GroupDir(group), "state.db")
			st, err := store.Open(path, store.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			err = st.View(func(v *store.View) error {
				return errors.Join(
					v.EachPending(func(r store.Reservation) bool {
						if r.Kind != job.NameQueue {
							kept = append(kept, fmt.Sprintf("group %d: %s is pending", group, r.Name))
						}
						return true
					}),
					v.EachOwed(func(h store.Held) bool {
						kept = append(kept, fmt.Sprintf("group %d: %s is owed", group, h.Name))
						return true
					}))
			})
			if at := st.Counters().Index; at >= newest {
				newest, of = at, kept
			}
			if err = errors.Join(err, st.Close()); err != nil {
				t.Fatal(err)
			}
		}
		left = append(left, of...)
	}
	return left
}

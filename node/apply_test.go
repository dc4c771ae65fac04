package node

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// applyFile is jobs from..to with a schedule.
func applyFile(from, to int, schedule string) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"name":"job-%d","type":"queue","schedule":%q,"payload":{"queue":"q%d"}}`+"\n", i, schedule, i%7)
	}
	return b.String()
}

// applyLines says how many lines were answered in which way.
func applyLines(t *testing.T, c *client.Client, file string, each func(n int)) (map[string]int, error) {
	t.Helper()
	count, n := map[string]int{}, 0
	err := c.ApplyJobs(t.Context(), strings.NewReader(file), client.ApplyOptions{}, func(r client.ApplyResult) error {
		if count[r.Status]++; r.Error != nil && count[r.Status] < 5 {
			t.Logf("line %d: %v", r.Line, r.Error)
		}
		if n++; each != nil {
			each(n)
		}
		return nil
	})
	return count, err
}

// converge applies lines until all of them are done: a busy machine may change its leader at any time. It gives the
// counts of the last time.
func converge(t *testing.T, c *client.Client, file string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		n, err := applyLines(t, c, file, nil)
		if err == nil && n["error"] == 0 {
			return n
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			t.Fatalf("the jobs cannot be applied: %v, %v", n, err)
		}
	}
}

// everyJob is every job of a list, by pages.
func everyJob(t *testing.T, c *client.Client) (out []job.Job, _ error) {
	t.Helper()
	for q := (client.JobQuery{Limit: 1000}); ; {
		page, err := c.ListJobs(t.Context(), q)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Jobs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return out, nil
		}
	}
}

// Thousands of jobs are applied, of which half are there and differ, and the leader dies in the middle of it. Applied
// again, they are what the file says, and nothing was done twice: a job that was created has its first version, one
// that was changed its second.
func TestApplyOutlivesItsLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	jobs := 4000 // several chunks
	if os.Getenv("CARILLON_LONG") != "" {
		jobs = 10_000
	}
	c := startCluster(t, 3)
	leader := c.leader()
	api := client.New(c.others(leader)[0].Addr())
	converge(t, api, applyFile(0, jobs/2, "0 1 * * *"))
	file := applyFile(0, jobs, "0 2 * * *")
	n, err := applyLines(t, api, file, func(n int) {
		if n == 1 { // of the first chunk
			leader.crash()
		}
	})
	t.Logf("with the leader killed: %v, %v", n, err)
	converge(t, api, file)
	if n = converge(t, api, file); n["unchanged"] != jobs {
		t.Fatalf("a third time: %v", n)
	}
	var list []job.Job
	c.others(leader)[0].eventually("all jobs are listed", func() bool {
		list, err = everyJob(t, api)
		return err == nil
	})
	if len(list) != jobs {
		t.Errorf("%d jobs", len(list))
	}
	for _, j := range list {
		var i int
		fmt.Sscanf(j.Name, "job-%d", &i)
		if want := map[bool]uint64{true: 2, false: 1}[i < jobs/2]; j.Version != want || j.Schedule != "0 2 * * *" {
			t.Fatalf("%s has version %d and schedule %s", j.Name, j.Version, j.Schedule)
		}
	}
}

// With several groups a line finds its job wherever that is, by the home of its name: a job in a queue is where the
// queue is.
func TestApplyOverGroups(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Groups = 3 })
	api := client.New(n.Addr())
	dry := func(file string) map[string]int {
		count := map[string]int{}
		err := api.ApplyJobs(context.Background(), strings.NewReader(file), client.ApplyOptions{DryRun: true}, func(r client.ApplyResult) error {
			count[r.Status]++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	const jobs = 100
	converge(t, api, applyFile(1000, 1100, "@manual")) // until every group takes jobs
	for _, step := range []struct{ schedule, want string }{
		{"0 1 * * *", "created"}, {"0 1 * * *", "unchanged"}, {"0 2 * * *", "changed"}, {"0 2 * * *", "unchanged"},
	} {
		file := applyFile(0, jobs, step.schedule)
		if got := dry(file); got[step.want] != jobs {
			t.Errorf("a dry run: %v and not %s", got, step.want)
		}
		if got, err := applyLines(t, api, file, nil); err != nil || got[step.want] != jobs {
			t.Fatalf("%v and not %s, %v", got, step.want, err)
		}
	}
	groups := map[uint8]bool{}
	list, err := everyJob(t, api)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range list {
		groups[j.ID.Group()] = true
	}
	if len(groups) < 2 {
		t.Errorf("jobs are in groups %v", groups)
	}
	// A job does not move to a queue of another group: an edit refuses it, and so does an apply.
	moved := strings.ReplaceAll(applyFile(0, 7, "0 2 * * *"), `"queue":"q`, `"queue":"p`)
	got, err := applyLines(t, api, moved, nil)
	if err != nil || got["changed"]+got["error"] != 7 || got["error"] == 0 {
		t.Errorf("%v, %v", got, err)
	}
}

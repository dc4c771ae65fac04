package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
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

// every job of a list, by pages.
func everyJob(t *testing.T, c *client.Client) (out []job.Job) {
	t.Helper()
	for q := (client.JobQuery{Limit: 1000}); ; {
		page, err := c.ListJobs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Jobs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return out
		}
	}
}

// Ten thousand jobs are applied, of which half are there and differ, and the leader dies in the middle of it. Applied
// again, they are what the file says, and nothing was done twice: a job that was created has its first version, one
// that was changed its second.
func TestApplyOutlivesItsLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	const jobs = 10_000
	c := startCluster(t, 3)
	leader := c.leader()
	api := client.New(c.others(leader)[0].Addr())
	if n, err := applyLines(t, api, applyFile(0, jobs/2, "0 1 * * *"), nil); err != nil || n["created"] != jobs/2 {
		t.Fatal(n, err)
	}
	file := applyFile(0, jobs, "0 2 * * *")
	n, err := applyLines(t, api, file, func(n int) {
		if n == 1 { // of a first chunk of ten
			leader.crash()
		}
	})
	t.Logf("with the leader killed: %v, %v", n, err)
	if n, err = applyLines(t, api, file, nil); err != nil || n["error"] != 0 {
		t.Fatalf("again: %v, %v", n, err)
	}
	if n, err = applyLines(t, api, file, nil); err != nil || n["unchanged"] != jobs {
		t.Fatalf("a third time: %v, %v", n, err)
	}
	list := everyJob(t, api)
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
	for _, j := range everyJob(t, api) {
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

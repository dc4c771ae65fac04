// Package sim runs whole clusters in virtual time and breaks them by a seed. DESIGN.md says what is real in it and what
// is not.
package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/watch"
)

// stuckAfter is for how much of real time virtual time may stand still. On a busy machine a seed may take minutes.
const stuckAfter = 5 * time.Minute

// Result is what one seed gave.
type Result struct {
	Seed      uint64
	Profile   string
	Simulated time.Duration
	Faults    map[string]int
	Input     checker.Input   // of everything
	Groups    []checker.Input // of each group that has jobs
	Report    checker.Report
	Problems  []string
	Log       []string
	Plan      *plan
}

// scratch is where the data directories are: in memory if there is such a place, because nothing here is about the
// disk's speed.
func scratch(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "carillon-sim-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// Run simulates one seed.
func Run(t *testing.T, seed uint64, l *logs) *Result { return runPlan(t, newPlan(seed), l) }

// planOf is that of a seed: the one with a name, or the ordinary one.
func planOf(name string, seed uint64) *plan {
	if name != "" {
		return directedPlan(name, seed)
	}
	return newPlan(seed)
}

func runPlan(t *testing.T, p *plan, l *logs) *Result {
	seed := p.seed
	r := &Result{Seed: seed, Profile: p.o.profile, Plan: p}
	dir := scratch(t)
	w := watch.New(stuckAfter, func(stacks string) {
		panic(fmt.Sprintf("%s does not get on: is a lock held while its holder sleeps?\n  replay: %s\n\n%s",
			p, p.replay(), stacks))
	})
	defer w.Stop()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		alive, end := context.WithCancel(context.Background())
		defer end()
		go w.Beat(alive, p.o.length/200)
		c := newCluster(p, dir, l)
		if c.up() {
			c.calendars()
			c.play()
			if c.settle() {
				if in, ok := c.final(); ok {
					c.problems = append(c.problems, sameNames(in.Final.Jobs)...)
					var wrong []string
					in.Final.Jobs, wrong = c.splitMade(in.Final.Jobs)
					c.problems = append(c.problems, wrong...)
					r.Input, r.Groups = in, c.apart(in)
					for i, group := range c.o.jobGroups() {
						r.Groups[i].Final.Digests = c.replicas(group)
					}
					if c.o.groups > 0 { // otherwise it is one of those
						c.replicas(0)
					}
				}
			}
		}
		r.Simulated = time.Since(began)
		c.down()
		r.Problems, r.Faults, r.Log = c.problems, c.kinds, c.rec.log
	})
	os.RemoveAll(filepath.Clean(dir))
	if len(r.Problems) == 0 {
		r.Report = verdict(r.Groups)
		for _, p := range r.Report.Problems {
			r.Problems = append(r.Problems, p.String())
		}
	}
	return r
}

// Describe is what a person needs to look into a seed.
func (r *Result) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d (%s, %d nodes, %d groups, then %d, %d workers, %d jobs, %d calls, %d faults planned, %s "+
		"simulated)\n", r.Seed, r.Profile, r.Plan.o.nodes, max(1, r.Plan.o.groups), max(1, r.Plan.o.most()),
		r.Plan.o.workers,
		len(r.Plan.jobs), len(r.Plan.calls), len(r.Plan.faults), r.Simulated.Round(time.Second))
	for i, p := range r.Problems {
		if i == 20 {
			fmt.Fprintf(&b, "  … and %d more\n", len(r.Problems)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", p)
	}
	fmt.Fprintf(&b, "  replay: %s\n", r.Plan.replay())
	return b.String()
}

// replay is the command that runs a plan again.
func (p *plan) replay() string {
	name := ""
	if p.name != "" {
		name = "CARILLON_SIM_PLAN=" + p.name + " "
	}
	if forced := os.Getenv(groupsVariable); forced != "" {
		name += groupsVariable + "=" + forced + " "
	}
	return fmt.Sprintf("%sCARILLON_SIM_SEED=%d go test ./proof/sim -run 'TestSeed$' -v", name, p.seed)
}

func (p *plan) String() string { return strings.TrimSpace(fmt.Sprintf("%s seed %d", p.name, p.seed)) }

// Totals add up results.
type Totals struct {
	Seeds                                                              int
	Simulated                                                          time.Duration
	Faults                                                             map[string]int
	Calls, Jobs, Occurrences, NotRun, Runs, Effects, Repeated, Unknown int
}

// Add counts a result.
func (x *Totals) Add(r *Result) {
	if x.Faults == nil {
		x.Faults = map[string]int{}
	}
	x.Seeds++
	x.Simulated += r.Simulated
	for k, n := range r.Faults {
		x.Faults[k] += n
	}
	x.Calls += len(r.Input.Calls)
	for _, c := range r.Input.Calls {
		if c.Outcome == checker.Unknown {
			x.Unknown++
		}
	}
	x.Jobs += r.Report.Jobs
	x.Occurrences += r.Report.Occurrences
	x.NotRun += r.Report.NotRun
	x.Runs += r.Report.Runs
	x.Effects += len(r.Input.Effects)
	x.Repeated += r.Report.Repeated
}

func (x *Totals) String() string {
	kinds := make([]string, 0, len(x.Faults))
	all := 0
	for k, n := range x.Faults {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
		all += n
	}
	sort.Strings(kinds)
	return fmt.Sprintf("%d seeds, %.1f days simulated, %d faults (%s), %d calls (%d without a certain answer), %d "+
		"jobs, %d occurrences checked (%d of them not run), %d runs, %d attempts started, %d runs "+
		"repeated with an excuse",
		x.Seeds, x.Simulated.Hours()/24, all, strings.Join(kinds, ", "), x.Calls, x.Unknown, x.Jobs, x.Occurrences,
		x.NotRun, x.Runs, x.Effects, x.Repeated)
}

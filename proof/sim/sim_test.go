//go:debug randseednop=0

package sim

import (
	"fmt"
	"log/slog"
	"maps"
	mrand "math/rand"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a seed makes much garbage and keeps little
	os.Exit(m.Run())
}

// TestSeed replays one seed, with its log under -v. Plan, network and targets are those of the seed; raft's timeouts
// and keys are drawn from generators that the seed sets as well. What is left to chance is the order in which
// goroutines run.
func TestSeed(t *testing.T) {
	text := os.Getenv("CARILLON_SIM_SEED")
	if text == "" {
		t.Skip("set CARILLON_SIM_SEED to replay a seed")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	l := &logs{level: slog.LevelWarn}
	if testing.Verbose() {
		l.out = os.Stderr
	}
	if os.Getenv("CARILLON_SIM_LOG") != "" {
		l.level = slog.LevelDebug
	}
	// What happens once in a thousand replays on one processor may happen in one of ten on as many as found it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(number(t, "CARILLON_SIM_PROCS", 1)))
	began := time.Now()
	r := replay(t, planOf(os.Getenv("CARILLON_SIM_PLAN"), seed), l)
	t.Logf("seed %d, %s simulated in %s: %s", seed, r.Simulated, time.Since(began), r.Report)
	for i, p := range r.Report.Problems {
		if i < 3 {
			t.Logf("%s\n%s", p, r.Explain(p))
			if p.Occurrence = 0; os.Getenv("CARILLON_SIM_LOG") != "" {
				t.Logf("the whole job:\n%s", r.Explain(p))
			}
		}
	}
	if len(r.Problems) > 0 {
		t.Error(r.Describe())
	}
}

// replay runs a seed with everything that can be seeded being so.
func replay(t *testing.T, p *plan, l *logs) *Result {
	cryptotest.SetGlobalRandom(t, p.seed)
	//lint:ignore SA1019 raft draws from the global generator
	mrand.Seed(int64(p.seed))
	return runPlan(t, p, l)
}

// TestReplay runs a seed twice. What was planned must be the same, and done the same; how far the course of events
// agrees beyond that is said under -v.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one processor")
	}
	const seed = 4
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var runs [2]*Result
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) { runs[i] = replay(t, newPlan(seed), &logs{}) })
	}
	a, b := runs[0], runs[1]
	if !reflect.DeepEqual(a.Plan, b.Plan) {
		t.Error("one seed made two plans")
	}
	done := func(r *Result) (out []string) {
		for _, c := range r.Input.Calls {
			out = append(out, fmt.Sprint(c.Kind, " ", c.Request))
		}
		slices.Sort(out)
		return out
	}
	if got, want := done(b), done(a); len(want) == 0 || float64(len(got)) < 0.8*float64(len(want)) {
		t.Errorf("%d calls the first time, %d the second", len(want), len(got))
	}
	same := 0
	for same < min(len(a.Log), len(b.Log)) && a.Log[same] == b.Log[same] {
		same++
	}
	t.Logf("the logs have %d and %d lines, of which the first %d agree", len(a.Log), len(b.Log), same)
	if same < len(a.Log) && same < len(b.Log) {
		t.Logf("first difference:\n  %s\n  %s", a.Log[same], b.Log[same])
	}
}

// long says whether all of it is asked for. Otherwise some seeds and plans are run, the same ones each time.
var long = os.Getenv("CARILLON_LONG") != ""

// number is a whole number from the environment.
func number(t *testing.T, variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestSeeds runs the first seeds, as many as CARILLON_SIM_SEEDS says; without it some of them: storms, one with clocks
// that drift, and a season; in short, which is how the race detector runs them, those that take the least.
func TestSeeds(t *testing.T) {
	seeds := []uint64{1, 3, 4, 8, 10}
	if testing.Short() {
		seeds = []uint64{3, 4, 8}
	}
	if n := number(t, "CARILLON_SIM_SEEDS", 0); n > 0 {
		seeds = nil
		for seed := uint64(1); seed <= uint64(n); seed++ {
			p := newPlan(seed)
			switch {
			case seed > 10 && p.o.profile == "season": // one is enough here
			case seed > 20 && p.o.most() > 1 && !long: // three are: they cost several times as much
			default:
				seeds = append(seeds, seed)
			}
		}
	}
	var mu sync.Mutex
	var all Totals
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				r := Run(t, seed, &logs{})
				if len(r.Problems) > 0 {
					t.Error(r.Describe())
				}
				mu.Lock()
				defer mu.Unlock()
				all.Add(r)
			})
		}
	})
	t.Log(all.String())
}

// TestYear runs a year, over all changes of the clocks.
func TestYear(t *testing.T) {
	if !long {
		t.Skip("set CARILLON_LONG=1 to run it")
	}
	t.Parallel()
	seed := uint64(1)
	if text := os.Getenv("CARILLON_SIM_YEAR"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	l := &logs{level: slog.LevelWarn}
	if os.Getenv("CARILLON_SIM_LOG") != "" {
		l.out = os.Stderr
	}
	r := runPlan(t, yearPlan(seed), l)
	for i, p := range r.Report.Problems {
		if i < 3 {
			t.Logf("%s\n%s", p, r.Explain(p))
		}
	}
	if len(r.Problems) > 0 {
		t.Error(r.Describe())
	}
	var all Totals
	all.Add(r)
	t.Log(all.String())
}

// TestLong runs new seeds for a while.
func TestLong(t *testing.T) {
	if !long {
		t.Skip("set CARILLON_LONG=1 to run it; CARILLON_SIM_MINUTES says for how long")
	}
	minutes := 6.0
	if text := os.Getenv("CARILLON_SIM_MINUTES"); text != "" {
		var err error
		if minutes, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	first := uint64(time.Now().UnixNano() / 1000 % 1e12 * 1000)
	if text := os.Getenv("CARILLON_SIM_FIRST"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seeds from %d on, for %g minutes", first, minutes)
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	var mu sync.Mutex
	var all Totals
	var failed []string
	next := first
	t.Run("seeds", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("hand", w), func(t *testing.T) {
				t.Parallel()
				for time.Now().Before(end) {
					mu.Lock()
					seed := next
					next++
					mu.Unlock()
					t.Run(fmt.Sprint(seed), func(t *testing.T) {
						r := Run(t, seed, &logs{})
						mu.Lock()
						defer mu.Unlock()
						if len(r.Problems) > 0 {
							failed = append(failed, fmt.Sprint(seed))
							t.Error(r.Describe())
						}
						all.Add(r)
					})
				}
			})
		}
	})
	t.Log(all.String())
	if len(failed) > 0 {
		t.Errorf("failed: %s", strings.Join(failed, " "))
	}
}

// large are directed plans that take ten seconds of a processor and more.
var large = []string{"aborted-create", "grow-begin", "grow-behind", "grow-keys", "late-release", "lost-offers",
	"stale-home"}

// firstSeed is for plans whose first seeds do not come to what they are made for.
var firstSeed = map[string]uint64{"nudged": 5}

// small are directed plans that take little, for the race detector.
var small = []string{"inherited", "late-queue"}

// TestDirected runs the plans that are made for one thing to happen: CARILLON_SIM_DIRECTED seeds of each, two if it may
// be long, and otherwise one seed of every sixth, or of the small ones in short. Those that are large are left out unless
// it may be long.
func TestDirected(t *testing.T) {
	n, step := number(t, "CARILLON_SIM_DIRECTED", 0), 1
	switch {
	case n == 0 && long:
		n = 2
	case n == 0 && testing.Short():
		n = 1
	case n == 0:
		n, step = 1, 6
	}
	names := slices.Sorted(maps.Keys(directed))
	if !long { // these simulate up to 27 replicas, some for long; names, one-lease and grow are left
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(large, name) })
	}
	if testing.Short() {
		names = small
	}
	for k, name := range names {
		if k%step != 0 {
			continue
		}
		for i := range n {
			seed := max(1, firstSeed[name]) + uint64(i)
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				if r := runPlan(t, directedPlan(name, seed), &logs{}); len(r.Problems) > 0 {
					t.Error(r.Describe())
				}
			})
		}
	}
}

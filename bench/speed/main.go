// Command speed compares two builds of carillon on this machine: it runs the same scenarios of `carillon bench` with
// both, in turns, and prints the ratio of each figure.
//
//	go run ./bench/speed [-pairs 5] [-only hot,lag] BASE NEW
//
// Two kinds of figures are compared. Times and rates depend on the machine and on the minute, so only the ratios within
// one pair count. Counts (allocations, system calls, fsyncs, log entries, wakeups) depend on the code alone; they show
// a rise of some percent that times on a noisy machine do not.
//
// Each build is measured by its own `carillon bench`, since the API between the bench and the nodes may have changed
// between the two.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// scenario is one measurement of `carillon bench`.
type scenario struct {
	name string
	args []string
	// progress is what the scenario moves on: the counts are taken between from and to of it, and divided by the
	// difference. A nil progress counts a fixed time at rest, and divides by its seconds.
	progress func(status) int
	from, to int
	figures  []figure
}

// figure is a field of what `carillon bench --json` prints.
type figure struct {
	name   string
	field  string // "a.b" is field b of object a
	higher bool   // a higher value is better
	count  bool   // it depends on the code, not on the machine's speed
}

func runs(s status) int { return s.History.Last }
func jobs(s status) int { return s.Jobs }

// scenarios are those of every comparison. Hot begins after its 20,000 probe jobs, and what it counts begins with the
// first runs.
var scenarios = []scenario{
	{"hot", []string{"--jobs", "200000"}, runs, 1, 200_000, []figure{
		{"hot: runs a second", "per_second", true, false},
		{"hot: CPU of nodes per 1,000 runs", "cpu_seconds_per_1000", false, false}}},
	{"lag", []string{"--rate", "100", "--duration", "30s"}, runs, 400, 2400, []figure{
		{"lag: CPU of nodes per 1,000 runs", "cpu_seconds_per_1000", false, false},
		{"lag: p50", "lag_ms.p50", false, false}}},
	{"idle", []string{"--duration", "60s"}, nil, 0, 0, []figure{
		{"idle: CPU of nodes", "cpu_percent", false, false},
		{"idle: wakeups a second", "wakeups_per_second", false, true}}},
	{"submit", []string{"--duration", "10s"}, jobs, 2000, 8000, []figure{
		{"submit: creates a second", "per_second", true, false},
		{"submit: CPU of nodes per 1,000", "cpu_seconds_per_1000", false, false},
		{"submit: p50", "latency_ms.p50", false, false}}},
}

func main() {
	pairs := flag.Int("pairs", 5, "how often each scenario is run with each build")
	only := flag.String("only", "", "scenarios, such as hot,lag; default all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args(), *pairs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, builds []string, pairs int, only string) error {
	if len(builds) != 2 || pairs < 1 {
		return fmt.Errorf("usage: speed [-pairs N] [-only hot,lag,idle,submit] BASE NEW")
	}
	t := &table{}
	for _, s := range scenarios {
		if only != "" && !slices.Contains(strings.Split(only, ","), s.name) {
			continue
		}
		for i := range pairs {
			var got [2]values
			for k := range builds {
				k = (k + i) % 2 // each round begins with the other build
				v, err := measure(ctx, builds[k], s)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", s.name, builds[k], err)
				}
				got[k] = v
			}
			t.add(s, got[0], got[1])
			fmt.Fprintf(os.Stderr, "%s: pair %d of %d: %s\n", s.name, i+1, pairs, t.last(s))
		}
	}
	t.print(os.Stdout)
	return t.verdict()
}

// values are the figures of one measurement, by name.
type values map[string]float64

// measure runs one scenario with one build.
func measure(ctx context.Context, build string, s scenario) (values, error) {
	cmd := exec.CommandContext(ctx, build, append([]string{"bench", s.name, "--json"}, s.args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its nodes
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	watched := make(chan values, 1)
	ended, end := context.WithCancel(ctx)
	go func() { watched <- count(ended, cmd.Process.Pid, s) }()
	err := cmd.Wait()
	end()
	v := <-watched
	if err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, out.Bytes(), problems.Bytes())
	}
	var result map[string]any
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return nil, err
	}
	for _, f := range s.figures {
		x, ok := field(result, f.field)
		if !ok {
			return nil, fmt.Errorf("the result has no %s: %s", f.field, out.Bytes())
		}
		v[f.name] = x
	}
	return v, nil
}

func field(v map[string]any, path string) (float64, bool) {
	head, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := v[head].(map[string]any)
		return field(inner, rest)
	}
	x, ok := v[head].(float64)
	return x, ok
}

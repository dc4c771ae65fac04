package bench

import (
	"fmt"
	"slices"
	"time"
)

// Result is what a scenario found. Problems are what was wrong with the work itself; then there are no figures.
type Result struct {
	Scenario string  `json:"scenario"`
	Target   string  `json:"target,omitempty"`
	Secure   bool    `json:"secure,omitempty"`
	Nodes    int     `json:"nodes"`
	Groups   int     `json:"groups,omitempty"`  // with jobs, if there are several
	Jobs     uint64  `json:"jobs"`              // in the cluster
	Runs     int     `json:"runs,omitempty"`    // that were measured
	Created  int     `json:"created,omitempty"` // jobs
	Seconds  float64 `json:"seconds,omitempty"`
	Rate     float64 `json:"per_second,omitempty"`

	CycleMS  float64 `json:"cycle_ms,omitempty"`  // from the claim to the result, on average
	InFlight float64 `json:"in_flight,omitempty"` // runs at a time, on average

	Lag     *Spread `json:"lag_ms,omitempty"`     // from the scheduled millisecond to the start
	Latency *Spread `json:"latency_ms,omitempty"` // of a request
	Gap     *Spread `json:"gap_ms,omitempty"`     // without a start, around a kill of the leader

	Lost     int `json:"lost"`
	Repeated int `json:"repeated"`

	CPUPer1000 float64 `json:"cpu_seconds_per_1000,omitempty"`  // of nodes
	WorkerCPU  float64 `json:"worker_cpu_per_1000,omitempty"`   // of worker processes
	BytesPer   float64 `json:"bytes_written_per_run,omitempty"` // on all nodes together
	LeaderAnon uint64  `json:"leader_rss_anon_bytes,omitempty"`
	LeaderFile uint64  `json:"leader_rss_file_bytes,omitempty"`
	DiskPerJob float64 `json:"disk_bytes_per_job,omitempty"`
	LoadRate   float64 `json:"loaded_per_second,omitempty"`
	StartMS    float64 `json:"start_ms,omitempty"`    // from process start to ready
	TakeoverMS float64 `json:"takeover_ms,omitempty"` // from the kill of the leader until another one works

	CPUPercent float64 `json:"cpu_percent,omitempty"` // of one core, by all nodes together
	Wakeups    float64 `json:"wakeups_per_second,omitempty"`
	Load       int     `json:"load,omitempty"`      // busy processes beside it
	Elections  *int    `json:"elections,omitempty"` // while no leader died

	Problems []string `json:"problems,omitempty"`
}

// Spread is how a figure is spread.
type Spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// spread sorts values and says what is in the middle and at the end.
func spread(v []float64) *Spread {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	at := func(q float64) float64 { return v[min(len(v)-1, int(q*float64(len(v))))] }
	return &Spread{Count: len(v), P50: at(0.5), P99: at(0.99), Max: v[len(v)-1]}
}

func (r *Result) problem(format string, args ...any) {
	if len(r.Problems) < 20 {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// judged is the result to show. How fast something was that is wrong means nothing, so it is left out.
func (r *Result) judged() *Result {
	if len(r.Problems) == 0 {
		return r
	}
	return &Result{Scenario: r.Scenario, Target: r.Target, Secure: r.Secure, Nodes: r.Nodes, Groups: r.Groups,
		Jobs: r.Jobs, Runs: r.Runs, Created: r.Created, Lost: r.Lost, Repeated: r.Repeated, Problems: r.Problems}
}

// Lines is the result for people: a name and a value each.
func (r *Result) Lines() (out [][2]string) {
	add := func(show bool, name, format string, args ...any) {
		if show {
			out = append(out, [2]string{name, fmt.Sprintf(format, args...)})
		}
	}
	title := r.Scenario
	if r.Target != "" {
		title += ", target " + r.Target
	}
	if r.Secure {
		title += ", secure"
	}
	nodes := fmt.Sprintf("%d nodes", r.Nodes)
	if r.Groups > 1 {
		nodes += fmt.Sprintf(", %d groups", r.Groups)
	}
	add(true, "scenario", "%s, %s", title, nodes)
	add(r.Jobs > 0, "jobs in the cluster", "%s", count(float64(r.Jobs)))
	add(r.LoadRate > 0, "loaded", "%s jobs/s", count(r.LoadRate))
	in := ""
	if r.Seconds > 0 {
		in = fmt.Sprintf(" in %.2f s", r.Seconds)
	}
	add(r.Runs > 0, "runs", "%s%s", count(float64(r.Runs)), in)
	add(r.Created > 0 && (r.Seconds > 0 || len(r.Problems) > 0), "created", "%s%s", count(float64(r.Created)), in)
	add(r.Rate > 0, "rate", "%s/s", count(r.Rate))
	add(r.CycleMS > 0, "cycle", "%.1f ms from claim to result, %s runs in flight", r.CycleMS, count(r.InFlight))
	if r.Lag != nil {
		add(true, "lag", "p50 %.0f ms, p99 %.0f ms, max %.0f ms", r.Lag.P50, r.Lag.P99, r.Lag.Max)
	}
	if r.Latency != nil {
		add(true, "latency", "p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.Latency.P50, r.Latency.P99, r.Latency.Max)
	}
	if r.Gap != nil {
		add(true, "gap", "p50 %.0f ms, worst %.0f ms of %d kills", r.Gap.P50, r.Gap.Max, r.Gap.Count)
	}
	add(r.Runs > 0 || len(r.Problems) > 0, "lost, repeated", "%d, %d", r.Lost, r.Repeated)
	add(r.CPUPer1000 > 0, "CPU", "%.3f s of all nodes per 1,000, %.3f s of workers", r.CPUPer1000, r.WorkerCPU)
	add(r.CPUPercent > 0, "CPU", "%.2f %% of one core for all nodes, over %.0f s", r.CPUPercent, r.Seconds)
	add(r.Wakeups > 0, "wakeups", "%s a second on all nodes", count(r.Wakeups))
	if r.Elections != nil {
		add(true, "elections", "%d while every leader was alive, with %d busy processes beside them",
			*r.Elections, r.Load)
	}
	add(r.BytesPer > 0, "written", "%s bytes for each of them on all nodes", count(r.BytesPer))
	add(r.LeaderAnon > 0, "leader's memory", "%d MiB, and %d MiB of mapped files", r.LeaderAnon>>20, r.LeaderFile>>20)
	add(r.DiskPerJob > 0, "disk", "%.0f bytes a job", r.DiskPerJob)
	add(r.StartMS > 0, "start", "%s", time.Duration(r.StartMS*1e6).Round(time.Millisecond))
	add(r.TakeoverMS > 0, "takeover", "%s", time.Duration(r.TakeoverMS*1e6).Round(time.Millisecond))
	for _, p := range r.Problems {
		add(true, "problem", "%s", p)
	}
	return out
}

// count writes a number with commas.
func count(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// status is what is read of a node's status.
type status struct {
	Jobs    int `json:"jobs"`
	History struct {
		Last int `json:"last_seq"`
	} `json:"history"`
	Raft struct {
		LastLogIndex string `json:"last_log_index"`
	} `json:"raft"`
}

// node is a process of the cluster that a bench started.
type node struct {
	pid  int
	addr string
}

const (
	look    = 100 * time.Millisecond // between two looks at the progress
	atRest  = 30 * time.Second       // counted of a scenario without progress
	resting = 10 * time.Second       // before that
)

// count watches the nodes that a bench started, and counts what they do in the middle of the scenario.
func count(ctx context.Context, bench int, s scenario) values {
	out := values{}
	nodes := started(ctx, bench)
	if len(nodes) == 0 {
		return out
	}
	base, begin := -1, time.Time{}
	until := func(n int) (at int, ok bool) {
		for ctx.Err() == nil {
			if now, err := nodes[0].status(ctx); err == nil {
				p := s.progress(now)
				if base < 0 {
					base = p
				}
				if p-base >= n {
					return p, true
				}
			}
			sleep(ctx, look)
		}
		return 0, false
	}
	var from, to int
	if s.progress != nil {
		ok := false
		if from, ok = until(s.from); !ok {
			return out
		}
	} else {
		sleep(ctx, resting)
		begin = time.Now()
	}
	calls := trace(ctx, nodes)
	before := used(ctx, nodes)
	per := 0.0
	if s.progress != nil {
		ok := false
		if to, ok = until(s.to); !ok {
			return out
		}
		per = float64(to - from)
	} else {
		sleep(ctx, atRest)
		per = time.Since(begin).Seconds()
	}
	after := used(ctx, nodes)
	if ctx.Err() != nil || per <= 0 {
		return out
	}
	unit := " a run"
	switch {
	case s.progress == nil:
		unit = " a second"
	case s.name == "submit":
		unit = " a create"
	}
	for k, v := range after {
		out[s.name+": "+k+unit] = (v - before[k]) / per
	}
	for k, v := range calls() {
		out[s.name+": "+k+unit] = v / per
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// started waits until the bench has started three nodes that answer.
func started(ctx context.Context, bench int) []node {
	for ; ctx.Err() == nil; sleep(ctx, look) {
		nodes := nodesOf(bench)
		if len(nodes) < 3 {
			continue
		}
		up := 0
		for _, n := range nodes {
			if _, err := n.status(ctx); err == nil {
				up++
			}
		}
		if up == len(nodes) {
			return nodes
		}
	}
	return nil
}

// nodesOf are the children of a process that are `carillon server`.
func nodesOf(parent int) (out []node) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", parent))
	for _, t := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", parent, t.Name()))
		for _, c := range strings.Fields(string(children)) {
			cmdline, _ := os.ReadFile("/proc/" + c + "/cmdline")
			args := strings.Split(string(cmdline), "\x00")
			pid, err := strconv.Atoi(c)
			if err != nil || len(args) < 2 || args[1] != "server" {
				continue
			}
			for i, a := range args[:len(args)-1] {
				if a == "--listen" {
					out = append(out, node{pid, args[i+1]})
				}
			}
		}
	}
	return out
}

func (n node) get(ctx context.Context, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = body{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return res, nil
}

func (n node) status(ctx context.Context) (s status, err error) {
	res, err := n.get(ctx, "/api/v1/status?stale=true") // of this node alone, so that it costs no other one anything
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// used sums up what the nodes have used so far.
func used(ctx context.Context, nodes []node) values {
	out := values{}
	for i, n := range nodes {
		if res, err := n.get(ctx, "/metrics"); err == nil {
			for sc := bufio.NewScanner(res.Body); sc.Scan(); {
				name, value, _ := strings.Cut(sc.Text(), " ")
				v, _ := strconv.ParseFloat(value, 64)
				switch name {
				case "go_memstats_mallocs_total":
					out["allocations"] += v
				case "go_memstats_alloc_bytes_total":
					out["bytes allocated"] += v
				}
			}
			_ = res.Body.Close()
		}
		if s, err := n.status(ctx); err == nil && i == 0 {
			v, _ := strconv.ParseFloat(s.Raft.LastLogIndex, 64)
			out["log entries"] = v
		}
		file, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", n.pid))
		for line := range strings.Lines(string(file)) {
			if v, ok := strings.CutPrefix(line, "write_bytes:"); ok {
				bytes, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
				out["bytes written"] += bytes
			}
		}
	}
	return out
}

// traced are the kernel's events that perf counts.
var traced = map[string]string{"raw_syscalls:sys_enter": "system calls", "syscalls:sys_enter_fdatasync": "fsyncs",
	"syscalls:sys_enter_fsync": "fsyncs"}

// trace begins to count system calls by perf, and returns what ends that. A machine without perf, or where it may not
// count, has none of these rows.
func trace(ctx context.Context, nodes []node) func() values {
	var events, pids []string
	for e := range traced {
		events = append(events, e)
	}
	for _, n := range nodes {
		pids = append(pids, strconv.Itoa(n.pid))
	}
	cmd := exec.CommandContext(ctx, "perf", "stat", "-x", ";", "-e", strings.Join(events, ","), "-p",
		strings.Join(pids, ","))
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		return func() values { return nil }
	}
	return func() values {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it ends by the signal
		v := values{}
		for line := range strings.Lines(out.String()) {
			if f := strings.Split(line, ";"); len(f) > 2 && traced[f[2]] != "" {
				n, err := strconv.ParseFloat(f[0], 64)
				if err == nil {
					v[traced[f[2]]] += n
				}
			}
		}
		return v
	}
}

// body ends the request's context with the answer.
type body struct {
	inner interface {
		Read([]byte) (int, error)
		Close() error
	}
	cancel context.CancelFunc
}

func (b body) Read(p []byte) (int, error) { return b.inner.Read(p) }

func (b body) Close() error {
	defer b.cancel()
	return b.inner.Close()
}

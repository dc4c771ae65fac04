//go:build unix

package executor

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// ToolsOptions are what a worker carries out, and with what.
type ToolsOptions struct {
	Types   []job.Type
	Version string
	Shell   ShellOptions
	Brokers map[string]job.Broker
	// Egress says what http and message jobs may connect to; nil: egress.Default. Commands connect as they like.
	Egress *egress.Policy
	// QueueCommand does the runs of queues. It is bounded as shell jobs are.
	QueueCommand string
	QueueDir     string // where that runs, absolute; empty: home, as shell jobs
}

// Tools are the runners of one worker, that of a node or `carillon worker`.
type Tools struct {
	Runners map[job.Type]Runner
	shell   *Shell
	closers []func()
}

// NewTools makes a runner for each type. Close them when no attempt is running.
func NewTools(o ToolsOptions) (_ *Tools, err error) {
	t := &Tools{Runners: map[job.Type]Runner{}}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	for _, typ := range o.Types {
		i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Type == typ })
		if i < 0 {
			return nil, fmt.Errorf("executor: this binary cannot carry out %q jobs", typ)
		}
		if t.Runners[typ], err = kinds[i].New(t, o); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// OnClose adds what gives back what a runner holds.
func (t *Tools) OnClose(f func()) { t.closers = append(t.closers, f) }

// commands is the one that all commands run with: its cgroup and its spawner are there once.
func (t *Tools) commands(o ToolsOptions) (_ *Shell, err error) {
	if t.shell == nil {
		shell := o.Shell
		shell.operated = !slices.Contains(o.Types, job.TypeShell)
		if t.shell, err = NewShell(shell); err != nil {
			return nil, err
		}
		t.OnClose(t.shell.Close)
	}
	return t.shell, nil
}

// Close gives back what the runners hold.
func (t *Tools) Close() {
	for _, c := range t.closers {
		c()
	}
	t.closers = nil
}

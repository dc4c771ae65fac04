//go:build unix

package executor

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
)

// ToolsOptions are what a worker carries out, and with what.
type ToolsOptions struct {
	Types   []job.Type
	Version string
	Shell   ShellOptions
	Brokers map[string]job.Broker
	// QueueCommand does the runs of queues. It is bounded as shell jobs are.
	QueueCommand string
	QueueDir     string // where that runs, absolute; empty: home, as shell jobs
}

// Tools are the runners of one worker, whoever runs it: a node or `carillon worker`.
type Tools struct {
	Runners map[job.Type]Runner
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
	var shell *Shell
	commands := func() error { // shell and queue share one: its cgroup and its spawner are there once
		if shell != nil {
			return nil
		}
		var err error
		if shell, err = NewShell(o.Shell); err == nil {
			t.closers = append(t.closers, shell.Close)
		}
		return err
	}
	for _, kind := range o.Types {
		switch kind {
		case job.TypeHTTP:
			h := NewHTTP(HTTPOptions{Version: o.Version})
			t.closers = append(t.closers, h.Close)
			t.Runners[kind] = h
		case job.TypeShell:
			if err := commands(); err != nil {
				return nil, err
			}
			t.Runners[kind] = shell
		case job.TypeQueue:
			if o.QueueCommand == "" {
				return nil, fmt.Errorf("executor: the runs of queues need a command")
			}
			if err := commands(); err != nil {
				return nil, err
			}
			t.Runners[kind] = &Queue{Shell: shell, Command: o.QueueCommand, Dir: o.QueueDir}
		case job.TypeMessage:
			m, err := NewMessage(MessageOptions{Version: o.Version, Brokers: o.Brokers})
			if err != nil {
				return nil, err
			}
			t.closers = append(t.closers, m.Close)
			t.Runners[kind] = m
		default:
			return nil, fmt.Errorf("executor: this binary cannot carry out %q jobs", kind)
		}
	}
	return t, nil
}

// Close gives back what the runners hold.
func (t *Tools) Close() {
	for _, c := range t.closers {
		c()
	}
	t.closers = nil
}

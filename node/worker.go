package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// localWorker is the node's own worker. It speaks the same protocol as all others; while this node leads, only the wire
// is missing.
type localWorker struct {
	n      *Node
	w      *worker.Worker // nil: this node carries out nothing
	tools  *executor.Tools
	groups *workerGroups
}

func newLocalWorker(n *Node) (_ *localWorker, err error) {
	l := &localWorker{n: n}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if len(n.cfg.Executors) == 0 {
		return l, nil
	}
	runners := map[job.Type]executor.Runner{}
	var types []job.Type
	for _, t := range n.cfg.Executors {
		if r := n.cfg.Machine.Runners[t]; r != nil {
			runners[t] = r
		} else if known := executor.NodeTypes(); !slices.Contains(known, string(t)) {
			return nil, fmt.Errorf("executors: the worker of a node cannot carry out %q jobs: use %s",
				t, strings.Join(known, ", "))
		} else {
			types = append(types, t)
		}
	}
	shell := n.cfg.Shell
	shell.Dir = n.dir.File(datadir.ProcsDir)
	shell.Apart, shell.Private, shell.Logger = n.cfg.Secure, n.dir.Path, n.cfg.Logger
	if l.tools, err = executor.NewTools(executor.ToolsOptions{Types: types, Version: n.cfg.Version, Shell: shell,
		Brokers: n.cfg.Brokers, Egress: n.egress}); err != nil {
		return nil, err
	}
	maps.Copy(runners, l.tools.Runners)
	secret, err := executor.SealedSecret(n.dir.Path)
	if err != nil {
		return nil, err
	}
	l.groups = &workerGroups{n: n}
	l.w, err = executor.NewWorker(worker.Options{
		Name: n.cfg.NodeID, Secret: secret, Where: executor.Whereabouts(n.dir.Path), Version: n.cfg.Version,
		Slots: n.cfg.Slots, Tags: n.cfg.Tags,
		Groups: worker.Groups{List: l.groups.list, Leader: l.groups.leader,
			Every: n.cfg.Machine.Pace.Of(listGroupsEvery)}, Logger: n.cfg.Logger,
		DrainTimeout: n.cfg.DrainTimeout, Clock: n.cfg.Machine.WorkerClock, Pace: n.cfg.Machine.Pace,
	}, runners)
	return l, err
}

// run works until ctx ends and then drains. What a predecessor's shell attempts left running is killed first: once this
// worker is registered their runs are given out again.
func (l *localWorker) run(ctx context.Context) {
	log := l.n.cfg.Logger
	switch err := executor.ClearLeftovers(ctx, l.n.dir.File(datadir.ProcsDir), log); {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Error("process groups of an earlier start could not be killed; this node takes no work", "error", err)
		l.n.fail(fmt.Errorf("ending what an earlier start left running: %w", err))
		return
	}
	if l.w == nil {
		return
	}
	if err := l.w.Run(ctx); err != nil {
		log.Warn("worker stopped", "error", err)
	}
}

// kill makes run return without draining.
func (l *localWorker) kill() {
	if l.w != nil {
		l.w.Kill()
	}
}

func (l *localWorker) close() {
	if l.tools != nil {
		l.tools.Close()
	}
	if l.groups != nil {
		l.groups.close()
	}
}

func (l *localWorker) busy() int {
	if l.w == nil {
		return 0
	}
	return l.w.Standing().Busy
}

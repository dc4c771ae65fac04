package node

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

// localWorker is the node's own worker. It speaks the same protocol as all others; only the wire is missing.
type localWorker struct {
	n     *Node
	w     *executor.Worker // nil: this node carries out nothing
	http  *executor.HTTP
	shell *executor.Shell
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
	for _, t := range n.cfg.Executors {
		switch t {
		case job.TypeHTTP:
			l.http = executor.NewHTTP(executor.HTTPOptions{Version: n.cfg.Version})
			runners[t] = l.http
		case job.TypeShell:
			if l.shell, err = executor.NewShell(executor.ShellOptions{Dir: n.dir.file(dirProcs)}); err != nil {
				return nil, err
			}
			runners[t] = l.shell
		default:
			return nil, fmt.Errorf("executors: this binary cannot carry out %q jobs: use http or shell", t)
		}
	}
	secret, err := n.dir.workerSecret()
	if err != nil {
		return nil, err
	}
	l.w, err = executor.New(executor.Options{
		Name: n.cfg.NodeID, Secret: secret, Version: n.cfg.Version, Slots: n.cfg.Slots, Tags: n.cfg.Tags, Runners: runners,
		Leader: (*localLeader)(n.group.lead), Logger: n.cfg.Logger, DrainTimeout: n.cfg.DrainTimeout,
	})
	return l, err
}

// run works until ctx ends and then drains. What a predecessor's shell attempts left running is killed first: once this worker is
// registered their runs are given out again (design §6).
func (l *localWorker) run(ctx context.Context) {
	log := l.n.cfg.Logger
	if n, err := executor.KillLeftovers(l.n.dir.file(dirProcs)); err != nil {
		log.Error("process groups of an earlier start could not be cleared away; this node takes no work", "error", err)
		l.n.fail(fmt.Errorf("clear away what an earlier start left running: %w", err))
		return
	} else if n > 0 {
		log.Warn("killed process groups that an earlier start left behind", "groups", n)
	}
	if l.w == nil {
		return
	}
	if err := l.w.Run(ctx); err != nil {
		log.Warn("the worker stopped", "error", err)
	}
}

func (l *localWorker) close() {
	if l.http != nil {
		l.http.Close()
	}
	if l.shell != nil {
		l.shell.Close()
	}
}

func (l *localWorker) busy() int {
	if l.w == nil {
		return 0
	}
	busy, _ := l.w.Stats()
	return busy
}

// localLeader is the leader as the local worker sees it: this node's current leadership, whichever that is.
type localLeader leadership

// registerWait is how long a registration waits for somebody to lead.
const registerWait = 2 * time.Second

func (l *localLeader) epoch() (*epoch, error) {
	if e := (*leadership)(l).current(); e != nil {
		return e, nil
	}
	return nil, errNoLeader()
}

func (l *localLeader) Register(ctx context.Context, r job.Register) (job.Session, error) {
	e, err := (*leadership)(l).await(ctx, registerWait)
	if err != nil {
		return job.Session{}, err
	}
	for { // an epoch that is just taking over needs a moment, and the worker would come back much later
		s, err := e.sched.Register(ctx, r)
		if job.CodeOf(err) != job.CodeNotReady || !pause(ctx, 20*time.Millisecond) {
			return s, err
		}
	}
}

func (l *localLeader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	e, err := l.epoch()
	if err != nil {
		return job.PollReply{}, err
	}
	return e.sched.Poll(ctx, p)
}

func (l *localLeader) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	e, err := l.epoch()
	if err != nil {
		return job.HeartbeatReply{}, err
	}
	return e.sched.Heartbeat(ctx, h)
}

func (l *localLeader) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	e, err := l.epoch()
	if err != nil {
		return job.ReportReply{}, err
	}
	return e.sched.Report(ctx, r)
}

package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// batchLog applies what is queued in one transaction, as raft does.
type batchLog struct {
	f     *fsm.FSM
	queue chan *testFuture
	index uint64
}

func (l *batchLog) ProposeAll(cmds ...fsm.Command) []Future { return proposeEach(l.Propose, cmds) }

func (l *batchLog) Propose(cmd fsm.Command) Future {
	f := &testFuture{cmd: cmd, done: make(chan struct{}), term: 1}
	f.data, f.err = fsm.Encode(cmd)
	if f.err != nil {
		close(f.done)
		return f
	}
	l.queue <- f
	return f
}

func (l *batchLog) VerifyLeader(context.Context) error           { return nil }
func (l *batchLog) Confirm(context.Context, time.Duration) error { return nil }

func (l *batchLog) run() {
	for f := range l.queue {
		batch := []*testFuture{f}
		for len(batch) < 64 && len(l.queue) > 0 {
			batch = append(batch, <-l.queue)
		}
		logs := make([]*raft.Log, len(batch))
		for i, f := range batch {
			l.index++
			logs[i] = &raft.Log{Index: l.index, Term: 1, Type: raft.LogCommand, Data: f.data}
		}
		for i, r := range l.f.ApplyBatch(logs) {
			if reply, ok := r.(*fsm.Reply); ok {
				batch[i].reply = reply
			} else {
				batch[i].err = fmt.Errorf("%v", r)
			}
			close(batch[i].done)
		}
	}
}

// BenchmarkHotSecond is the leader's share of half a million jobs that are due together: claim, hand over, take the
// results and commit them, with workers that answer at once and a log that only applies. An operation is a run.
func BenchmarkHotSecond(b *testing.B) {
	st, err := store.Open(filepath.Join(b.TempDir(), "state.db"), store.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	log := &batchLog{f: fsm.New(st, fsm.Options{}), queue: make(chan *testFuture, 256)}
	go log.run()
	defer close(log.queue)
	at := time.Now().UnixMilli()
	var last Future
	for i := 0; i < b.N; {
		cmd := &fsm.Create{Head: fsm.Head{Now: at, Term: 1}}
		for ; i < b.N && len(cmd.Items) < 500; i++ {
			spec := job.Spec{Name: fmt.Sprintf("job-%d", i), Type: job.TypeShell, Schedule: "*/5 * * * *",
				Timezone: "Europe/London", Payload: []byte(`{"command":"true"}`)}
			spec.Normalize()
			def := store.Definition{Spec: spec, Version: 1, CreatedAt: at, UpdatedAt: at}
			data := def.Append(nil)
			cmd.Items = append(cmd.Items, fsm.CreateItem{Job: uint64(i + 1), Def: data, Next: fsm.When{At: at, Ready: at}})
		}
		last = log.Propose(cmd)
	}
	if _, err := last.Wait(); err != nil {
		b.Fatal(err)
	}
	s := New(Options{Store: st, Proposer: log, Term: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for s.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	var ran atomic.Int64
	all := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	for i := range 4 {
		go benchWorker(ctx, s, fmt.Sprint("w", i), 4096, func(n int) {
			// Not equal: every five minutes the jobs are due again, and what that adds may step over the number.
			if now := ran.Add(int64(n)); now >= int64(b.N) && now-int64(n) < int64(b.N) {
				close(all)
			}
		})
	}
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	cancel()
	<-done
}

func benchWorker(ctx context.Context, s *Scheduler, name string, slots int, done func(int)) {
	p := job.Poll{Worker: name, Secret: name, Types: []job.Type{job.TypeShell}, Slots: slots}
	var inHand atomic.Int64
	for ctx.Err() == nil {
		r, err := s.Poll(ctx, p)
		if err != nil {
			return
		}
		p.Session, p.Wait, p.Hold = r.Session, job.Duration(time.Second), job.Duration(time.Second)
		p.Free = slots - int(inHand.Add(int64(len(r.Runs))))
		if len(r.Runs) == 0 {
			continue
		}
		go func() {
			rep := job.Report{Session: r.Session, Results: make([]job.Result, len(r.Runs))}
			for i, a := range r.Runs {
				rep.Results[i] = job.Result{Ref: job.Ref{Fence: a.Fence}, Outcome: job.OutcomeSucceeded,
					StartedAt: a.ClaimedAt, FinishedAt: a.ClaimedAt}
			}
			inHand.Add(-int64(len(r.Runs)))
			if reply, err := s.Report(ctx, rep); err == nil {
				done(len(reply.Results))
			}
		}()
	}
}

package proof

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// ask makes a call as a program does that wants it done: with one key, through any node, until the answer is certain or
// ctx ends. It notes the call and what its caller knows in the end.
func (l *load) ask(ctx context.Context, call checker.Call,
	do func(context.Context, *client.Client, *checker.Call) error) error {
	c := &call
	c.Invoke = job.At(time.Now())
	if c.Request == "" {
		c.Request = fmt.Sprintf("%s-%d", strings.ReplaceAll(c.Kind.String(), " ", "-"), l.keys.Add(1))
	}
	unknown := false
	err := ctx.Err()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(client.WithIdempotencyKey(ctx, c.Request), 5*time.Second)
		err = do(once, l.anyone(), c)
		cancel()
		switch job.CodeOf(err) {
		case job.CodeNoLeader, job.CodeNotReady, job.CodeUnavailable, job.CodeNotLeader: // nothing was changed
		default:
			if passing(err) || errors.Is(err, context.Canceled) {
				unknown = true
				break
			}
			if err != nil && job.CodeOf(err) == job.CodeInternal {
				l.t.Errorf("%s of %s: %v", c.Kind, c.Job, err)
			}
			if c.Outcome = checker.OK; err != nil {
				c.Outcome = checker.Refused
			}
		}
		if c.Outcome != checker.Unknown {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	switch {
	case c.Outcome == checker.Unknown && !unknown:
		c.Outcome = checker.Refused // each answer promised that nothing was changed
	case c.Outcome == checker.Refused && unknown:
		c.Outcome = checker.Unknown
	}
	c.Return = job.At(time.Now()) + 1
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	return err
}

// once makes a call a single time and notes it.
func (l *load) once(call checker.Call, do func(*checker.Call) error) error {
	c := &call
	c.Invoke = job.At(time.Now())
	err := do(c)
	switch {
	case err == nil:
		c.Outcome = checker.OK
	case !passing(err):
		c.Outcome = checker.Refused
	}
	c.Return = job.At(time.Now()) + 1
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	return err
}

// tag changes something about a job that has nothing to do with when and how it runs. Nothing else edits it.
func (l *load) tag(ctx context.Context, c *client.Client, token, value string) error {
	id, spec := l.id(token)
	return l.once(checker.Call{Kind: checker.CallUpdate, Job: id, Name: spec.Name, Spec: &spec},
		func(call *checker.Call) error {
			j, err := c.PatchJob(ctx, token, fmt.Appendf(nil, `{"tags":{"n":%q}}`, value), 0)
			if err == nil {
				call.Version, call.Spec = j.Version-1, &j.Spec
			}
			return err
		})
}

// every are the tokens of the jobs of the load that go on for ever.
func (l *load) every() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, token := range l.order {
		if strings.HasPrefix(l.creates[token].Spec.Schedule, "@every") {
			out = append(out, token)
		}
	}
	return out
}

// patch changes a job of which the test knows everything: change does to its definition what the patch says.
func (l *load) patch(ctx context.Context, token string, patch []byte, change func(*job.Spec)) error {
	id, spec := l.id(token)
	l.mu.Lock()
	for _, c := range l.calls {
		if c.Job == id && c.Kind == checker.CallUpdate && c.Outcome == checker.OK {
			spec = *c.Spec
		}
	}
	l.mu.Unlock()
	change(&spec)
	return l.ask(ctx, checker.Call{Kind: checker.CallUpdate, Job: id, Name: spec.Name, Spec: &spec},
		func(ctx context.Context, c *client.Client, call *checker.Call) error {
			j, err := c.PatchJob(ctx, token, patch, 0)
			if err == nil {
				// Nothing else edits it, so what it is now is what this made of it; with that it is known which version it took the
				// place of, and what it has from earlier edits.
				call.Answer, call.Version, call.Spec = &j, j.Version-1, &j.Spec
			}
			return err
		})
}

// endOf gives a job an end.
func (l *load) endOf(ctx context.Context, token string, end time.Time) error {
	return l.patch(ctx, token, fmt.Appendf(nil, `{"end_at":%q}`, job.At(end)), func(s *job.Spec) { s.EndAt = job.At(end) })
}

// evidence collects what the nodes and the target know. Nothing is under way any more.
func (l *load) evidence() *harness.Evidence {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b := &harness.Evidence{Seen: l.target.Seen(), Faults: l.node.Outages(), Lease: l.lease, Workers: l.workers}
	logs := [][]byte{l.node.Log()}
	if l.cl != nil {
		b.Faults = l.cl.Outages()
		for _, n := range l.cl.Nodes {
			logs = append(logs, n.Log())
		}
	}
	var err error
	if b.Vacant, err = harness.Outages(logs...); err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	for _, c := range l.calls {
		b.Calls = append(b.Calls, *c)
	}
	l.mu.Unlock()
	// An answer breaks off when the node that gives it no longer leads, which a starved machine does to a leader.
	for b.Final, err = l.final(ctx); err != nil; b.Final, err = l.final(ctx) {
		if !passing(err) || ctx.Err() != nil {
			l.t.Fatalf("reading what is known: %v", err)
		}
		l.t.Logf("read again: %v", err)
		time.Sleep(100 * time.Millisecond)
	}
	return b
}

// restSlack is how long something may have been due at the end without anybody having decided about it. All schedules
// have ended by then and nothing is open.
const restSlack = 100 * time.Millisecond

// final is what a node says at the end.
func (l *load) final(ctx context.Context) (f checker.Final, err error) {
	f.At, f.Slack, f.Digests = job.At(time.Now()), restSlack, l.digests
	c := l.node.Client
	for q := (client.JobQuery{Limit: 500}); ; {
		page, err := c.ListJobs(ctx, q)
		if err != nil {
			return f, err
		}
		f.Jobs = append(f.Jobs, page.Jobs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	slices.SortFunc(f.Jobs, func(x, y job.Job) int { return cmp.Compare(x.ID, y.ID) })
	for q := (client.RunQuery{Limit: 500}); ; {
		page, err := c.Runs(ctx, q)
		if err != nil {
			return f, err
		}
		f.Open = append(f.Open, page.Runs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if err := c.ExportHistory(ctx, nil, 0, func(r job.Run, _ json.RawMessage) error {
		f.History = append(f.History, r)
		return nil
	}); err != nil {
		return f, err
	}
	for q := (client.DeadQuery{Limit: 500}); ; {
		page, err := c.DeadLetters(ctx, q)
		if err != nil {
			return f, err
		}
		f.Dead = append(f.Dead, page.Dead...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	f.Pending, err = l.pending(ctx, f.Jobs)
	return f, err
}

// pending are the intervals that are not in the history yet: only the job itself shows them.
func (l *load) pending(ctx context.Context, jobs []job.Job) (out []job.Run, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	todo := make(chan job.ID)
	for range 4 {
		wg.Go(func() {
			for id := range todo {
				page, perr := l.node.Stale().JobRuns(ctx, id.String(), client.RunQuery{Limit: 20})
				mu.Lock()
				err = errors.Join(err, perr)
				for _, r := range page.Runs {
					if r.Seq == 0 && r.RunID == "" {
						out = append(out, r)
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		if !j.OneOff() && j.Schedule != job.ScheduleManual {
			todo <- j.ID
		}
	}
	close(todo)
	wg.Wait()
	return out, err
}

// judge holds the evidence against every rule, and shows the first problems.
func (l *load) judge(b *harness.Evidence) checker.Report {
	l.t.Helper()
	in, problems := b.Input()
	began := time.Now()
	r := checker.Check(&in)
	for i, p := range r.Problems {
		problems = append(problems, p.String())
		if i < 3 {
			whole := p
			whole.Occurrence = 0
			l.t.Logf("%s\n%s    its job:\n%s", p, in.Explain(p), in.Explain(whole))
		}
	}
	if !l.anyExcuse {
		problems = append(problems, b.Excuses()...)
	}
	for i, p := range problems {
		if i == 30 {
			l.t.Errorf("… and %d more", len(problems)-i)
			break
		}
		l.t.Error(p)
	}
	l.t.Logf("checked in %s: %s; %d outages", time.Since(began).Round(time.Millisecond), r, len(in.Outages))
	return r
}

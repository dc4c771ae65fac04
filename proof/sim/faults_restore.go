package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/store"
)

// restored: a backup is taken, the cluster goes on for a while and is lost as a whole; a new one is made of the backup
// and is released after some time on hold. Runs are open in every state at that moment.
func restored(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 15*time.Second, 1
	p.steady(3, 5*time.Second, 0, time.Second, func(s *job.Spec) {
		s.Overlap = pick(rng, job.OverlapAllow, job.OverlapSkip, job.OverlapReplace)
	})
	for _, policy := range []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll} {
		p.steady(1, 11*time.Second, 0, time.Second, func(s *job.Spec) {
			s.Missed = job.Missed{Policy: policy, Grace: job.Duration(time.Second), Window: "1h", Max: 50}
		})
	}
	p.steady(2, 13*time.Second, 5*time.Second, 30*time.Second, func(s *job.Spec) {
		s.Overlap, s.Workers = job.OverlapQueue, map[string]string{"pool": "remote"}
	})
	p.steady(1, 9*time.Second, 0, time.Second, func(s *job.Spec) {
		s.Retry.Backoff = job.BackoffLinear
		s.Retry.Base, s.Retry.Cap = job.Duration(20*time.Second), job.Duration(time.Minute)
	})
	p.jobs[len(p.jobs)-1].m.fail = 0.9
	once := p.from(between(rng, 100*time.Second, 130*time.Second)).UTC().Truncate(time.Second)
	p.steady(1, time.Second, 0, time.Second, func(s *job.Spec) { s.Schedule = once.Format(time.RFC3339) })
	p.steady(1, time.Second, 0, time.Second, func(s *job.Spec) {
		s.Schedule = once.Add(time.Hour).Format(time.RFC3339)
	})
	p.ask(rng, 8, "run", 3, 5*time.Second, 80*time.Second)
	p.faults = append(p.faults, plannedFault{at: between(rng, 95*time.Second, 105*time.Second), kind: "restore",
		lasts: between(rng, 10*time.Second, 40*time.Second), x: rng.Uint64()})
}

// backup is a copy of the state with what is in it.
type backup struct {
	data []byte
	at   store.Counters
}

// backup takes one of the leader, with nothing committed after the entry that it ends with: its own record is in it.
func (c *cluster) backup() (b backup, ok bool) {
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		i := c.leader()
		if i < 0 {
			continue
		}
		st := c.servers[i].current().n.State()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, body, err := c.clients[i].Backup(ctx)
		if err == nil {
			b.data, err = io.ReadAll(body)
			body.Close()
		}
		cancel()
		if b.at = st.Counters(); err == nil {
			var info datadir.Backup
			info, err = datadir.CopyBackup(io.Discard, bytes.NewReader(b.data))
			if err == nil && info.Index == b.at.Index {
				return b, true
			}
		}
		c.event("backup: %v", err)
	}
	return b, false
}

// restore replaces the whole cluster by one that is made of a backup.
func (c *cluster) restore(f plannedFault, rng *rand.Rand) bool {
	b, ok := c.backup()
	if !ok {
		c.problem("no backup could be taken")
		return false
	}
	taken := c.t.instant()
	c.event("a backup was taken at entry %d", b.at.Index)
	time.Sleep(f.lasts)

	var xs []*checker.Fault
	given := b.at.Fence
	for _, s := range c.servers {
		if st := s.state(0); st != nil {
			given = max(given, st.Counters().Fence)
		}
		xs = append(xs, c.fault(checker.FaultKill, s.id, "", 0))
	}
	for _, s := range c.servers {
		if !s.kill() {
			c.problem("%s was not there to be killed", s.id)
			return false
		}
	}
	r := &checker.Restored{Backup: taken, Lost: c.t.instant(), Fence: b.at.Fence, Given: given}
	c.rec.forget(b, r)
	for _, s := range c.servers {
		if err := os.RemoveAll(s.dir); err != nil {
			c.problem("wipe %s: %v", s.id, err)
		}
		s.mu.Lock()
		s.wiped = true
		s.mu.Unlock()
	}
	first := c.servers[0]
	if _, err := datadir.Restore(datadir.RestoreConfig{Backup: bytes.NewReader(b.data), Name: "backup",
		DataDir: first.dir, NodeID: first.id, Advertise: first.host.Addr, Version: "sim", Now: c.t.now()}); err != nil {
		c.problem("restore: %v", err)
		return false
	}
	for i, s := range c.servers {
		s.start()
		c.over(xs[i])
	}
	if !c.voters() {
		c.problem("the restored cluster does not come together")
		return false
	}
	time.Sleep(between(rng, time.Second, 40*time.Second))
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		res, err := c.clients[try%len(c.clients)].Release(ctx)
		cancel()
		text, _ := json.Marshal(res)
		c.event("release: %s %v", text, err)
		if err == nil && res.At != 0 {
			r.Release = res.At
			break
		}
		if try == 100 {
			c.problem("the restored cluster cannot be released: %v", err)
			return false
		}
		time.Sleep(2 * time.Second)
	}
	c.rec.mu.Lock()
	c.rec.restored = r
	c.rec.mu.Unlock()
	return true
}

// forget drops what the lost cluster did after the backup: the new one knows nothing of it. What it started is kept by
// itself.
func (r *recorder) forget(b backup, to *checker.Restored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = slices.DeleteFunc(r.effects, func(e *checker.Effect) bool {
		if e.Fence > b.at.Fence {
			to.Done, to.Given = append(to.Done, e.Run), max(to.Given, e.Fence)
		}
		return e.Fence > b.at.Fence
	})
	r.handed = slices.DeleteFunc(r.handed, func(h checker.Handed) bool { return h.Fence > b.at.Fence })
	a := r.archiveOf(0)
	for seq := range a.records {
		if seq > b.at.HistSeq {
			delete(a.records, seq)
			delete(a.stamps, seq)
		}
	}
	a.seq = b.at.HistSeq
	for o := range a.outages {
		if int64(o.To) > int64(b.at.Mark) {
			delete(a.outages, o)
		}
	}
	r.log = append(r.log, fmt.Sprintf("what was done after the backup is forgotten: %d runs", len(to.Done)))
}

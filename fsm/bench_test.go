package fsm

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// benchJobs is how many jobs the state holds: CARILLON_BENCH_JOBS, 100,000 unless set.
func benchJobs(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(os.Getenv("CARILLON_BENCH_JOBS"))
	if err != nil {
		n = 100_000
	}
	return n
}

// period is how far apart the occurrences of a job are in the benchmarks, and the span over which those of all jobs are spread.
const period = 3_600_000

// benchWorld has many jobs whose next occurrences are spread over an hour, created through the state machine. It is fsynced.
func benchWorld(b *testing.B, jobs int) *world {
	b.Helper()
	w := &world{tb: b, path: filepath.Join(b.TempDir(), "state.db"), term: 1, now: T(0)}
	st, err := store.Open(w.path, store.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	w.st = st
	w.f = New(st, Options{})
	def := w.def(testSpec(nil), 1)
	for id := uint64(1); id <= uint64(jobs); {
		c := &Create{}
		for range 2000 {
			if id > uint64(jobs) {
				break
			}
			at := T(1) + int64(mix(id)%period)
			c.Items = append(c.Items, CreateItem{Job: id, Def: def, Next: When{at, at}})
			id++
		}
		w.apply(b, c)
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	if w.st, err = store.Open(w.path, store.Options{}); err != nil {
		b.Fatal(err)
	}
	w.f = New(w.st, Options{})
	b.Cleanup(func() { w.st.Close() })
	return w
}

// mix scatters numbers (splitmix64).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// apply is do without the checks.
func (w *world) apply(b *testing.B, cmd Command) *Reply {
	data, err := Encode(w.stamp(cmd))
	if err != nil {
		data = encodeLarge(b, cmd)
	}
	w.index++
	r, ok := w.f.Apply(&raft.Log{Index: w.index, Term: w.term, Type: raft.LogCommand, Data: data}).(*Reply)
	if !ok {
		b.Fatal("no reply")
	}
	return r
}

// encodeLarge is for setting up: no proposer may send it.
func encodeLarge(b *testing.B, cmd Command) []byte {
	b.Helper()
	data, err := encode(cmd)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// batch takes the next n occurrences off the left edge of the due index, as the scheduler does.
func (w *world) batch(b *testing.B, n int) *Claim {
	c := &Claim{}
	err := w.st.View(func(v *store.View) error {
		lane, _ := job.LaneOf("normal")
		return v.ScanDue(store.DueKey{Lane: lane}, 1<<60, func(e store.DueEntry) bool {
			addClaim(c, e.DueKey, e.State.Gen, e.At+period)
			return len(c.Jobs) < n
		})
	})
	if err != nil || len(c.Jobs) != n {
		b.Fatal(len(c.Jobs), err)
	}
	return c
}

// BenchmarkClaimComplete: each operation is one run, claimed and completed in batches of a size, every batch one entry and one fsynced
// transaction. "raw" is bbolt alone with the same keys and values in a copy of the same file: the bare limit. The two take turns, so
// that whatever else the machine does falls on both.
func BenchmarkClaimComplete(b *testing.B) {
	jobs := benchJobs(b)
	for _, size := range []int{256, 1024, 4096} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			w := benchWorld(b, jobs)
			size := min(size, jobs)
			raw := newRaw(b, w)
			var took, tookRaw time.Duration
			done := 0
			b.ReportAllocs()
			b.ResetTimer()
			for done < b.N {
				took += w.round(b, size)
				b.StopTimer()
				tookRaw += raw.round(b, size)
				b.StartTimer()
				done += size
			}
			b.StopTimer()
			b.ReportMetric(float64(done)/took.Seconds(), "runs/s")
			b.ReportMetric(float64(done)/tookRaw.Seconds(), "raw-runs/s")
			b.ReportMetric(tookRaw.Seconds()/took.Seconds(), "of-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// round claims and completes a batch. Making the commands is not part of it; encoding and decoding them is.
func (w *world) round(b *testing.B, size int) (took time.Duration) {
	b.StopTimer()
	claim := w.batch(b, size)
	w.now = claim.At[size-1]
	b.StartTimer()
	started := time.Now()
	items := w.apply(b, claim).Items
	took = time.Since(started)
	b.StopTimer()
	c := &Complete{}
	for _, o := range items {
		if o.Code != CodeClaimed {
			b.Fatalf("%+v", o)
		}
		addResult(c, o.Run, o.Fence, ResultSucceeded, 0)
	}
	b.StartTimer()
	started = time.Now()
	w.apply(b, c)
	return took + time.Since(started)
}

// raw is bbolt alone.
type raw struct {
	db  *bolt.DB
	seq uint64
}

func newRaw(b *testing.B, w *world) *raw {
	b.Helper()
	path := w.path + ".raw"
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.st.CopyTo(f); err != nil {
		b.Fatal(err)
	}
	f.Close()
	db, err := bolt.Open(path, 0o600, &bolt.Options{FreelistType: bolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: 64 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return &raw{db, 1 << 40}
}

// round does what claim and complete come to: look at a due entry, move it, put a run; look at both, take the run away, rewrite the due
// entry, append to the history.
func (r *raw) round(b *testing.B, size int) time.Duration {
	due, open, hist, meta := []byte("due"), []byte("runs"), []byte("history"), []byte("meta")
	row, record := make([]byte, 60), make([]byte, 40)
	var keys, values, next, rows [][]byte
	r.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(due).Cursor()
		for k, v := c.First(); k != nil && len(keys) < size; k, v = c.Next() {
			keys, values = append(keys, append([]byte(nil), k...)), append(values, append([]byte(nil), v...))
			n := append([]byte(nil), k...)
			binary.BigEndian.PutUint64(n[1:], binary.BigEndian.Uint64(k[1:])+period)
			binary.BigEndian.PutUint64(n[18:], binary.BigEndian.Uint64(k[18:])+period)
			next = append(next, n)
			rows = append(rows, append(append([]byte(nil), k[18:]...), k[9:18]...))
		}
		return nil
	})
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	started := time.Now()
	must(r.db.Update(func(tx *bolt.Tx) error {
		d, o := tx.Bucket(due), tx.Bucket(open)
		for i := range keys {
			if d.Get(keys[i]) == nil {
				b.Fatal("gone")
			}
			must(d.Delete(keys[i]))
			must(d.Put(next[i], values[i]))
			must(o.Put(rows[i], row))
		}
		return tx.Bucket(meta).Put([]byte("counters"), record)
	}))
	must(r.db.Update(func(tx *bolt.Tx) error {
		d, o, h := tx.Bucket(due), tx.Bucket(open), tx.Bucket(hist)
		h.FillPercent = 0.95
		for i := range keys {
			if o.Get(rows[i]) == nil || d.Get(next[i]) == nil {
				b.Fatal("gone")
			}
			must(o.Delete(rows[i]))
			must(d.Put(next[i], values[i]))
			r.seq++
			must(h.Put(binary.BigEndian.AppendUint64(nil, r.seq), record))
		}
		return tx.Bucket(meta).Put([]byte("counters"), record)
	}))
	return time.Since(started)
}

// BenchmarkCreate: each operation is one job with a name, created in batches as a bulk load makes them, beside twenty times as many names as are
// kept in memory. "settled" puts every name into its bucket at once.
func BenchmarkCreate(b *testing.B) {
	jobs := benchJobs(b)
	for _, names := range []struct {
		what string
		keep int
	}{{"settled", -1}, {"recent", jobs / 20}} {
		for _, size := range []int{256, 1024, 4096} {
			b.Run(fmt.Sprintf("names=%s/batch=%d", names.what, size), func(b *testing.B) {
				w := benchWorld(b, 1)
				reopen := func(o store.Options) {
					err := w.st.Close()
					if err == nil {
						w.st, err = store.Open(w.path, o)
					}
					if err != nil {
						b.Fatal(err)
					}
					w.f = New(w.st, Options{})
				}
				id := w.st.Counters().NextJob
				create := func(n int) time.Duration {
					c := &Create{}
					for range n {
						id++
						at := T(1) + int64(mix(id)%1440*60_000)
						spec := testSpec(func(s *job.Spec) { s.Name = strconv.FormatUint(mix(id), 36) })
						c.Items = append(c.Items, CreateItem{Job: id, Def: w.def(spec, 1), Next: When{at, at}})
					}
					started := time.Now()
					w.apply(b, c)
					return time.Since(started)
				}
				reopen(store.Options{NoSync: true, RecentNames: names.keep})
				for id < uint64(jobs) {
					create(2000)
				}
				reopen(store.Options{RecentNames: names.keep})
				var took, cpu time.Duration
				done := 0
				b.ReportAllocs()
				b.ResetTimer()
				for done < b.N {
					before := cpuTime()
					took += create(size)
					cpu += cpuTime() - before
					done += size
				}
				b.ReportMetric(float64(done)/took.Seconds(), "jobs/s")
				b.ReportMetric(float64(cpu.Nanoseconds())/1000/float64(done), "cpu-µs/job")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// cpuTime is what the process has used: unlike the time on the clock it hardly depends on what else the machine does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOpen: the walk over the pages, bbolt's own scan, and the index.
func BenchmarkOpen(b *testing.B) {
	jobs := benchJobs(b)
	w := benchWorld(b, jobs)
	size := w.st.Size()
	w.st.Close()
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"pages", func() error { return store.VerifyPages(w.path) }},
		{"all", func() error {
			st, err := store.Open(w.path, store.Options{})
			if err == nil {
				err = st.Close()
			}
			return err
		}},
	} {
		b.Run(part.name, func(b *testing.B) {
			for b.Loop() {
				if err := part.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)/float64(jobs), "B/job")
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/op")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCodec: the hot commands on their way through the log, an item an operation.
func BenchmarkCodec(b *testing.B) {
	claim, done := &Claim{Head: Head{Now: T(1), Term: 1}}, &Complete{Head: Head{Now: T(1), Term: 1}}
	for i := range 1024 {
		k := store.DueKey{Lane: 2, Ready: T(int64(i)), Job: job.ID(1_000_000 + i*37), Kind: store.KindOccurrence, Origin: job.OriginSchedule, At: T(int64(i))}
		addClaim(claim, k, 1, T(int64(i))+period)
		addResult(done, k.Run(), uint64(5_000_000+i), ResultSucceeded, 0)
	}
	for name, cmd := range map[string]Command{"claim": claim, "complete": done} {
		data := mustEncode(b, cmd)
		b.Run(name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i += 1024 {
				mustEncode(b, cmd)
			}
			b.ReportMetric(float64(len(data))/1024, "B/item")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i += 1024 {
				if _, err := Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

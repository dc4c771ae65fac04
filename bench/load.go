package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// loadStreams is how many requests create jobs side by side.
const loadStreams = 4

// maker writes the definition of the i-th job.
type maker func(w *bytes.Buffer, i int)

// load creates n jobs in bulk and returns the ids by the order of the jobs. The names begin with prefix.
func load(ctx context.Context, c *client.Client, n int, line maker,
	progress func(done int)) ([]job.ID, time.Duration, error) {
	ids := make([]job.ID, n)
	begin := time.Now()
	var done atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chunk := (n + loadStreams - 1) / loadStreams
	for from := 0; from < n; from += chunk {
		to := min(n, from+chunk)
		all.Go(func() {
			next := from
			err := c.BulkCreate(ctx, &lines{next: from, end: to, line: line}, func(r client.BulkResult) error {
				if r.Error != nil || r.JobID == nil {
					return fmt.Errorf("job %d was refused: %w", next, r.Error)
				}
				ids[next] = *r.JobID
				next++
				if d := done.Add(1); progress != nil && d%1000 == 0 {
					progress(int(d))
				}
				return nil
			})
			if err == nil && next != to {
				err = fmt.Errorf("%d of %d jobs were answered", next-from, to-from)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return ids, time.Since(begin), context.Cause(ctx)
}

// lines is the NDJSON of a range of jobs.
type lines struct {
	next, end int
	line      maker
	buf       bytes.Buffer
}

func (l *lines) Read(p []byte) (int, error) {
	for l.buf.Len() < len(p) && l.next < l.end {
		l.line(&l.buf, l.next)
		l.buf.WriteByte('\n')
		l.next++
	}
	if l.buf.Len() == 0 {
		return 0, io.EOF
	}
	return l.buf.Read(p)
}

// name is a job's name: scattered, as names of people's jobs are, so that the name index is not filled from left to
// right.
func name(prefix string, i int) string { return string(appendName(nil, prefix, i)) }

func appendName(b []byte, prefix string, i int) []byte {
	const hex = "0123456789abcdef"
	scattered := uint64(i+1)*0x9e3779b97f4a7c15 + scatter
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hex[scattered>>shift&15])
	}
	b = append(append(append(b, '-'), prefix...), '-')
	return strconv.AppendInt(b, int64(i), 10)
}

// scatter lets a cluster be measured again (--addr), which has the jobs of the last time.
var scatter = uint64(time.Now().UnixNano())

// text builds a line without fmt: what writes the definitions shares the machine with what is measured.
type text []byte

func (t text) str(s string) text { return append(t, s...) }
func (t text) num(n int) text    { return strconv.AppendInt(t, int64(n), 10) }

// idle makes jobs that are not due while anything is measured: daily ones, spread over the minutes of the day from two
// hours hence.
func idle(from time.Time) maker {
	from = from.UTC().Add(2 * time.Hour)
	minute := from.Hour()*60 + from.Minute()
	return func(w *bytes.Buffer, i int) {
		at := (minute + i%(20*60)) % (24 * 60)
		t := text(w.AvailableBuffer()).str(`{"name":"`)
		t = appendName(t, "idle", i)
		t = t.str(`","type":"http","schedule":"`).num(i % 60).str(" ").num(at % 60).str(" ").num(at / 60)
		t = t.str(` * * *","payload":{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":`).num(i)
		w.Write(t.str(`,"kind":"daily"}}}`))
	}
}

// dueAt makes jobs that are due once a year, at one second.
func dueAt(at time.Time, prefix string, to target) maker {
	at = at.UTC()
	rest := make([]string, len(to.payloads))
	for i, payload := range to.payloads {
		rest[i] = fmt.Sprintf(`","type":%q,"schedule":"%d %d %d %d %d *","payload":%s}`, to.typ, at.Second(),
			at.Minute(), at.Hour(), at.Day(), int(at.Month()), payload)
	}
	return func(w *bytes.Buffer, i int) {
		t := appendName(text(w.AvailableBuffer()).str(`{"name":"`), prefix, i)
		w.Write(append(t, rest[i%len(rest)]...))
	}
}

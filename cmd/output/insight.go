package output

import (
	"cmp"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// JobStats prints how the last runs of a job went.
func (p *Printer) JobStats(s wire.JobStats) {
	if s.SuccessRate == nil {
		p.Printf("no run has ended yet\n")
		return
	}
	quantiles := func(q wire.Quantiles) string {
		ms := func(n *int64) string {
			if n == nil {
				return "-"
			}
			return Fine(time.Duration(*n) * time.Millisecond)
		}
		return fmt.Sprintf("p50 %s, p95 %s, at most %s", ms(q.P50), ms(q.P95), ms(q.Max))
	}
	p.Fields(
		"runs", fmt.Sprintf("%d ended, %d succeeded, %d failed (%.1f %% success)", s.Runs, s.Succeeded, s.Failed,
			*s.SuccessRate*100),
		"took", quantiles(s.DurationMS), "lag", quantiles(s.LagMS), "scheduled", p.Span(s.From, s.To))
}

// Occurrences prints what became of the occurrences of a job.
func (p *Printer) Occurrences(page wire.OccurrencePage) {
	s := page.Summary
	p.Printf("%d expected: %d ran, %d open, %d explained, %d unaccounted\n", s.Expected, s.Ran, s.Open, s.Explained,
		s.Unaccounted)
	var t Table
	for list := page.Occurrences; len(list) > 0; {
		o := list[0]
		o.Last = cmp.Or(o.Last, o.ScheduledAt)
		// What did not run for one reason stands on one line.
		for list = list[1:]; len(list) > 0 && o.RunID+list[0].RunID == "" && o.Fate == list[0].Fate &&
			o.Reason == list[0].Reason; list = list[1:] {
			o.Count, o.Last = o.Count+list[0].Count, cmp.Or(list[0].Last, list[0].ScheduledAt)
		}
		at, fate := p.WhenCell(o.ScheduledAt), o.Fate
		if o.Count > 1 {
			at, fate = p.Span(o.ScheduledAt, o.Last), fmt.Sprintf("×%d %s", o.Count, fate)
		}
		t.Row(at, fate, o.Reason, o.RunID)
	}
	p.Table(t)
	p.More(page.NextCursor)
}

package store

// MaxPauses is how many pauses a job may have that occurrences which were due before them have not passed yet. With one
// more the last two become one, and what was due between them does not run.
const MaxPauses = 4

// Span is a time in which a job was paused: after From, up to To. Zero: none.
type Span struct{ From, To int64 }

// Pauses are the pauses of a job that are over and that its due occurrence lies before: those in them do not run. They
// are in order; what is not used is zero.
type Pauses [MaxPauses]Span

// Add adds the latest pause.
func (p *Pauses) Add(s Span) {
	if s.To <= s.From { // the clock was reset
		return
	}
	n := 0
	for n < MaxPauses && p[n] != (Span{}) {
		n++
	}
	if n == MaxPauses || n > 0 && s.From <= p[n-1].To {
		p[n-1].To = max(s.To, p[n-1].To)
		return
	}
	p[n] = s
}

// Pass drops those that an occurrence which is ready at a time lies behind.
func (p *Pauses) Pass(ready int64) {
	n := 0
	for n < MaxPauses && p[n] != (Span{}) && p[n].To < ready {
		n++
	}
	if n > 0 {
		copy(p[:], p[n:])
		clear(p[MaxPauses-n:])
	}
}

// At is the pause that a time is in.
func (p *Pauses) At(ready int64) (Span, bool) {
	for _, s := range p {
		if s.From < ready && ready <= s.To {
			return s, true
		}
	}
	return Span{}, false
}

func (p *Pauses) ordered() bool {
	last, end := int64(0), false
	for _, s := range p {
		if end = end || s == (Span{}); end {
			if s != (Span{}) {
				return false
			}
			continue
		}
		if s.From < last || s.To <= s.From {
			return false
		}
		last = s.To
	}
	return true
}

func (w *writer) pauses(p *Pauses) {
	n := 0
	for n < MaxPauses && p[n] != (Span{}) {
		n++
	}
	w.u8(uint8(n))
	for _, s := range p[:n] {
		w.i64(s.From)
		w.i64(s.To)
	}
}

func decodePauses(r *reader) (p Pauses, ok bool) {
	n := int(r.u8())
	if n == 0 || n > MaxPauses {
		return p, false
	}
	for i := range n {
		p[i] = Span{r.i64(), r.i64()}
	}
	return p, p[n-1] != (Span{}) && p.ordered()
}

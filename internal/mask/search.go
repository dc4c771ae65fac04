package mask

import "math"

// search looks for values in a text that comes piece by piece.
type search struct {
	m      *Masker
	views  [textViews]view
	base64 base64View
}

// read goes on with a text of which the beginning, which is at base, may have been read. Last says that nothing
// follows.
func (s *search) read(text []byte, base int64, last bool) {
	first := &s.views[plain]
	was := *first
	first.read(s.m, plain, text, base, last)
	for kind := plain + 1; kind < textViews; kind++ {
		// Most of a text has no escapes. It is the same to all of these views, and read once.
		if v := &s.views[kind]; v.follows(&was) && !hasEscape(kind, text[v.at-base:]) {
			v.follow(first)
		} else {
			v.read(s.m, kind, text, base, last)
		}
	}
	s.base64.read(s.m, text, base)
}

// found are the spans of all views.
func (s *search) found() [textViews + 1]*spans {
	all := [textViews + 1]*spans{&s.base64.found}
	for i := range s.views {
		all[i+1] = &s.views[i].found
	}
	return all
}

// settled is up to where it is known what belongs to a value.
func (s *search) settled() int64 {
	begin, read := s.base64.begin(s.m), s.base64.at
	for i := range s.views {
		begin, read = min(begin, s.views[i].begin(s.m.automaton)), min(read, s.views[i].at)
	}
	// What is in a value stays so, whatever else begins in it.
	for all := s.found(); ; {
		end := begin
		for _, list := range all {
			end = list.end(end)
		}
		if end == begin || end >= read {
			return min(end, read)
		}
		begin = end
	}
}

// next is the first part of what is left of a text at a place that belongs to values. It forgets what is before it.
func (s *search) next(at int64) span {
	next := span{math.MaxInt64, math.MaxInt64}
	for _, list := range s.found() {
		list.drop(at)
		if len(*list) > 0 && (*list)[0].from < next.from {
			next = (*list)[0]
		}
	}
	return next
}

// masked appends a part of a text that begins at a place. In says whether what is before it belongs to a value, and
// the result whether the end does.
func (s *search) masked(out, text []byte, at int64, in bool) ([]byte, bool) {
	for end := at + int64(len(text)); at < end; {
		next := s.next(at)
		if next.from > at {
			n := min(next.from, end) - at
			out, text, at, in = append(out, text[:n]...), text[n:], at+n, false
			continue
		}
		if !in {
			out = append(out, Replacement...)
		}
		n := min(next.to, end) - at
		text, at, in = text[n:], at+n, true
	}
	return out, in
}

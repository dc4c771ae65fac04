package router

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// source is a group's part of a list.
type source[T any] struct {
	group   uint32
	at      string // the cursor behind what was taken
	ended   bool
	missing bool
	asked   bool
	rows    []T
	next    string // behind the rows; empty: there are no more
	short   bool   // the group looked at enough for one request
	scanned int    // what it looked at for the rows that were taken
	left    int    // and for those that are left
}

func (s *source[T]) over() bool { return s.ended || s.missing }

// list is a list that is put together of those of the groups.
type list[T any] struct {
	kind byte // of its cursors
	// fetch is up to n rows of a group behind a cursor, what was looked at for them, and the cursor behind them.
	fetch func(group uint32, cursor string, n int) (rows []T, scanned int, next string, err error)
	// before says which of two rows of different groups comes first; nil: the groups come one after the other.
	before func(a, b T) bool
	// behind is the cursor of a group behind a row of it.
	behind func(T) string
}

// page puts the next page together. A group that had to look at too much makes it short.
func (l *list[T]) page(ctx context.Context, rt *Router, groups []uint32, limit int, cursor string, stale bool) (
	[]T, []*source[T], string, error) {
	if groups[0] == control && rt.has(control) && cursor != "" && cursor[0] != 'g' && len(cursor) <= maxCursor {
		cursor = "g" + string(l.kind) + "~0" + goesOn + cursor // of the time when that was the only group
	}
	all, err := parseCursor[T](l.kind, cursor, groups)
	if err != nil {
		return nil, nil, "", err
	}
	for _, s := range all {
		if s.missing {
			stateOf(ctx).miss(s.group)
		}
	}
	portion := limit
	if l.before != nil {
		// What is not taken is fetched again for the next page.
		portion = min(limit, 2*limit/len(all)+8)
	}
	fill := func(some []*source[T]) error { return l.fill(ctx, rt, some, portion, stale) }
	if l.before != nil {
		if err := fill(slices.DeleteFunc(slices.Clone(all), (*source[T]).over)); err != nil {
			return nil, nil, "", err
		}
	}
	var out []T
	for len(out) < limit {
		best := (*source[T])(nil)
		stalled := false
		for _, s := range all {
			if s.over() {
				continue
			}
			if len(s.rows) == 0 {
				if s.short {
					stalled = true
					break
				}
				portion = min(portion, limit-len(out))
				if err := fill([]*source[T]{s}); err != nil {
					return nil, nil, "", err
				}
				if len(s.rows) == 0 {
					if stalled = !s.over(); stalled {
						break
					}
					continue
				}
			}
			if best == nil || l.before(s.rows[0], best.rows[0]) {
				best = s
			}
			if l.before == nil {
				break
			}
		}
		if stalled || best == nil {
			break
		}
		out = append(out, best.rows[0])
		best.take(l.behind)
	}
	return out, all, cursorOf(l.kind, all), nil
}

// take moves a source behind its first row.
func (s *source[T]) take(behind func(T) string) {
	part := s.left / len(s.rows)
	s.scanned, s.left = s.scanned+part, s.left-part
	s.at = behind(s.rows[0])
	if s.rows = s.rows[1:]; len(s.rows) == 0 {
		s.at, s.ended = s.next, s.next == ""
	}
}

// fill fetches rows of sources that have none.
func (l *list[T]) fill(ctx context.Context, rt *Router, some []*source[T], n int, stale bool) error {
	byGroup := map[uint32]*source[T]{}
	var groups []uint32
	for _, s := range some {
		s.asked, s.missing = true, true // until it answers
		byGroup[s.group], groups = s, append(groups, s.group)
	}
	return rt.each(ctx, groups, stale, func(g uint32) error {
		s := byGroup[g]
		rows, scanned, next, err := l.fetch(g, s.at, n)
		if err != nil {
			return err
		}
		s.rows, s.next, s.short, s.missing = rows, next, len(rows) < n && next != "", false
		if s.left = scanned; len(rows) == 0 {
			s.scanned, s.left = s.scanned+scanned, 0
			s.at, s.ended = next, next == ""
		}
		return nil
	})
}

// The marks behind the number of a group in a cursor.
const (
	goesOn  = "."
	ended   = "_"
	missing = "-"
)

// maxCursor is the longest cursor: 64 groups with the longest names.
const maxCursor = 32 << 10

// cursorOf is the cursor over all groups; empty: there is no more.
func cursorOf[T any](kind byte, all []*source[T]) string {
	b := []byte{'g', kind}
	more := false
	for _, s := range all {
		b = strconv.AppendUint(append(b, '~'), uint64(s.group), 10)
		switch {
		case s.missing:
			b = append(b, missing...)
		case s.ended:
			b = append(b, ended...)
		default:
			more = true
			b = append(append(b, goesOn...), s.at...)
		}
	}
	if !more {
		return ""
	}
	return string(b)
}

// parseCursor is where a list goes on in each group. A group that is new since begins at its beginning.
func parseCursor[T any](kind byte, cursor string, groups []uint32) ([]*source[T], error) {
	all := make([]*source[T], len(groups))
	for i, g := range groups {
		all[i] = &source[T]{group: g}
	}
	if cursor == "" {
		return all, nil
	}
	rest, ok := strings.CutPrefix(cursor, "g"+string(kind)+"~")
	if !ok || len(cursor) > maxCursor {
		return nil, badCursor()
	}
	seen := map[int]bool{}
	for entry := range strings.SplitSeq(rest, "~") {
		end := strings.IndexFunc(entry, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			return nil, badCursor()
		}
		n, err := strconv.ParseUint(entry[:end], 10, 32)
		i := slices.Index(groups, uint32(n))
		if err != nil || i < 0 || seen[i] {
			return nil, badCursor()
		}
		seen[i] = true
		mark, at := entry[end:end+1], entry[end+1:]
		switch {
		case mark == goesOn:
			all[i].at = at
		case mark == ended && at == "":
			all[i].ended = true
		case mark == missing && at == "":
			all[i].missing = true
		default:
			return nil, badCursor()
		}
	}
	return all, nil
}

func badCursor() error {
	return job.Invalid("cursor", "use the next_cursor of the page before, with the same filters",
		"this is not a cursor of this list")
}

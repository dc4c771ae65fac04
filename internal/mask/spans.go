package mask

import "sort"

// span is a part of a text, from its first byte to the one after its last. Places are counted from the beginning of
// all that was written, which may be more than an int32 holds.
type span struct{ from, to int64 }

// spans are apart from each other, and in order.
type spans []span

// add takes one that ends where the last one ends, or later.
func (s *spans) add(from, to int64) {
	list := *s
	for len(list) > 0 && list[len(list)-1].from >= from {
		list = list[:len(list)-1]
	}
	if last := len(list) - 1; last >= 0 && list[last].to >= from {
		list[last].to = to
	} else {
		list = append(list, span{from, to})
	}
	*s = list
}

// drop forgets those that end at a place or before it.
func (s *spans) drop(at int64) {
	for len(*s) > 0 && (*s)[0].to <= at {
		*s = (*s)[1:]
	}
}

// end is the end of the one that has the byte at a place, or the place.
func (s spans) end(at int64) int64 {
	if len(s) == 0 || s[len(s)-1].to <= at {
		return at
	}
	i := sort.Search(len(s), func(i int) bool { return s[i].to > at })
	if s[i].from > at {
		return at
	}
	return s[i].to
}

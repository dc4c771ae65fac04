package fsm

import (
	"slices"

	msg "github.com/carillon-scheduler/carillon/job/pack"
)

// A create is written and read without reflection: a bulk load is a stream of them. What it looks like in the log is what the library
// makes of it, byte by byte.

func appendCreate(b []byte, c *Create) []byte {
	size := 64
	for i := range c.Items {
		size += 80 + len(c.Items[i].Def) + len(c.Items[i].Request.ID)
	}
	b = slices.Grow(b, size)
	b = msg.Map(b, 2)
	b = appendHead(msg.Str(b, "h"), c.Head)
	b = msg.Str(b, "i")
	if c.Items == nil {
		return msg.Nil(b)
	}
	b = msg.Array(b, len(c.Items))
	for i := range c.Items {
		b = appendCreateItem(b, &c.Items[i])
	}
	return b
}

func appendHead(b []byte, h Head) []byte {
	b = msg.Map(b, 2)
	b = msg.Uint(msg.Str(b, "t"), h.Term)
	return msg.Signed(msg.Str(b, "w"), h.Now)
}

func appendCreateItem(b []byte, it *CreateItem) []byte {
	b = msg.Map(b, 4)
	b = msg.Str(b, "d")
	if it.Def == nil {
		b = msg.Nil(b)
	} else {
		b = msg.Bin(b, it.Def)
	}
	b = msg.Uint(msg.Str(b, "j"), it.Job)
	b = appendWhen(msg.Str(b, "n"), it.Next)
	return appendRequest(msg.Str(b, "q"), &it.Request)
}

func appendWhen(b []byte, w When) []byte {
	b = msg.Map(b, given(w.At != 0, w.Ready != 0))
	if w.At != 0 {
		b = msg.Signed(msg.Str(b, "a"), w.At)
	}
	if w.Ready != 0 {
		b = msg.Signed(msg.Str(b, "r"), w.Ready)
	}
	return b
}

func appendRequest(b []byte, q *Request) []byte {
	b = msg.Map(b, given(q.Expires != 0, q.Fingerprint != 0, q.ID != ""))
	if q.Expires != 0 {
		b = msg.Signed(msg.Str(b, "e"), q.Expires)
	}
	if q.Fingerprint != 0 {
		b = msg.Uint(msg.Str(b, "f"), q.Fingerprint)
	}
	if q.ID != "" {
		b = msg.Str(msg.Str(b, "i"), q.ID)
	}
	return b
}

// given is how many fields are not left out.
func given(fields ...bool) (n int) {
	for _, f := range fields {
		if f {
			n++
		}
	}
	return n
}

// createReader gives up on what it does not expect and leaves that to the library.
type createReader struct{ msg.Reader }

// readCreate reads a create. The definitions stay in the memory of the entry, which nobody changes.
func readCreate(data []byte) (*Create, bool) {
	r := createReader{msg.Reader{B: data}}
	c := &Create{}
	r.Fields(func(key []byte) {
		switch string(key) {
		case "h":
			r.head(&c.Head)
		case "i":
			r.items(c)
		default:
			r.Bad = true
		}
	})
	return c, !r.Bad && len(r.B) == 0
}

func (r *createReader) head(h *Head) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "t":
			h.Term = r.Uint()
		case "w":
			h.Now = r.Int()
		default:
			r.Bad = true
		}
	})
}

// minItem is the shortest that an item can be: four names of fields and something for each.
const minItem = 12

func (r *createReader) items(c *Create) {
	n := r.Len()
	if r.Bad || n > len(r.B)/minItem { // memory is not taken on the word of a few bytes
		r.Bad = true
		return
	}
	c.Items = make([]CreateItem, n)
	for i := range c.Items {
		if r.item(&c.Items[i]); r.Bad {
			return
		}
	}
}

func (r *createReader) item(it *CreateItem) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "d":
			it.Def = r.Bytes()
		case "j":
			it.Job = r.Uint()
		case "n":
			r.when(&it.Next)
		case "q":
			r.request(&it.Request)
		default:
			r.Bad = true
		}
	})
}

func (r *createReader) when(w *When) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "a":
			w.At = r.Int()
		case "r":
			w.Ready = r.Int()
		default:
			r.Bad = true
		}
	})
}

func (r *createReader) request(q *Request) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "e":
			q.Expires = r.Int()
		case "f":
			q.Fingerprint = r.Uint()
		case "i":
			q.ID = r.Str()
		default:
			r.Bad = true
		}
	})
}

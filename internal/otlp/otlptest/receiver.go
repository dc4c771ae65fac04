// Package otlptest is a receiver of spans for tests. It reads what it is sent by the field numbers of OTLP's protocol
// definition, written down here once more: what the exporter writes is not what checks it.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Span is a span as it arrived.
type Span struct {
	Trace, ID, Parent, Name string
	Kind                    int
	Start, End              time.Time
	Attrs                   map[string]any
	Failed                  bool
	Error                   string
	Of                      map[string]any // the attributes of its resource
}

// String has all of it.
func (s Span) String() string {
	return fmt.Sprint(s.Trace, "/", s.ID, " of ", s.Parent, " ", s.Name, " kind ", s.Kind, " ", s.Start.UnixNano(), "-",
		s.End.UnixNano(), " ", s.Attrs, " ", s.Failed, " ", s.Error, " ", s.Of)
}

// Receiver takes spans.
type Receiver struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []Span
	raw     [][]byte
	headers []http.Header
	times   []time.Time
}

// New starts one, until the test ends. answer, if not nil, is asked first; where it says false it has answered, and the
// spans are not taken.
func New(t testing.TB, answer func(http.ResponseWriter) bool) *Receiver {
	r := &Receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.headers, r.times = append(r.headers, req.Header.Clone()), append(r.times, time.Now())
		r.mu.Unlock()
		body, err := read(req)
		if err != nil {
			t.Errorf("a request that cannot be read: %v", err)
		}
		if answer != nil && !answer(w) {
			return
		}
		spans, err := Decode(body)
		if err != nil {
			t.Errorf("not an export of spans: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spans, r.raw = append(r.spans, spans...), append(r.raw, body)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func read(req *http.Request) ([]byte, error) {
	if req.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(req.Body)
	}
	z, err := gzip.NewReader(req.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Spans are those that were taken.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Raw is all that was taken, as it came.
func (r *Receiver) Raw() (all []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.raw {
		all = append(all, b...)
	}
	return all
}

// Headers are those of all requests.
func (r *Receiver) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]http.Header(nil), r.headers...)
}

// Times are when requests came.
func (r *Receiver) Times() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Time(nil), r.times...)
}

// message is the fields of a message, by number, in their order.
type message map[protowire.Number][]value

type value struct {
	bytes []byte
	n     uint64
}

func parse(b []byte) (message, error) {
	m := message{}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		var v value
		switch kind {
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.n, n = protowire.ConsumeFixed64(b)
		default:
			return nil, fmt.Errorf("field %d has wire type %d", field, kind)
		}
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		m[field] = append(m[field], v)
	}
	return m, nil
}

func (m message) one(field protowire.Number) value {
	if len(m[field]) == 0 {
		return value{}
	}
	return m[field][len(m[field])-1]
}

// Decode reads an ExportTraceServiceRequest.
func Decode(b []byte) (out []Span, err error) {
	each := func(m message, field protowire.Number, fn func(message)) {
		for _, v := range m[field] {
			inner, bad := parse(v.bytes)
			if bad != nil {
				err = bad
				return
			}
			fn(inner)
		}
	}
	attrs := func(m message, field protowire.Number) map[string]any {
		out := map[string]any{}
		each(m, field, func(kv message) {
			each(kv, 2, func(v message) {
				if text, ok := v[1]; ok {
					out[string(kv.one(1).bytes)] = string(text[0].bytes)
				} else {
					out[string(kv.one(1).bytes)] = int64(v.one(3).n)
				}
			})
		})
		return out
	}
	request, err := parse(b)
	if err != nil {
		return nil, err
	}
	each(request, 1, func(ofResource message) {
		var of map[string]any
		each(ofResource, 1, func(resource message) { of = attrs(resource, 1) })
		each(ofResource, 2, func(scope message) {
			each(scope, 2, func(m message) {
				s := Span{Trace: hex.EncodeToString(m.one(1).bytes), ID: hex.EncodeToString(m.one(2).bytes),
					Parent: hex.EncodeToString(m.one(4).bytes), Name: string(m.one(5).bytes), Kind: int(m.one(6).n),
					Start: time.Unix(0, int64(m.one(7).n)), End: time.Unix(0, int64(m.one(8).n)),
					Attrs: attrs(m, 9), Of: of}
				if len(m.one(1).bytes) != 16 || len(m.one(2).bytes) != 8 {
					err = fmt.Errorf("ids %q and %q", s.Trace, s.ID)
				}
				each(m, 15, func(status message) {
					s.Failed, s.Error = status.one(3).n == 2, string(status.one(2).bytes)
				})
				out = append(out, s)
			})
		})
	})
	return out, err
}

package otlp

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/carillon-scheduler/carillon/internal/traceid"
)

// Attr is an attribute: a text or a number.
type Attr struct {
	Key  string
	text string
	n    int64
	num  bool
}

// String is an attribute with a text.
func String(key, value string) Attr { return Attr{Key: key, text: value} }

// Int is an attribute with a number.
func Int(key string, value int64) Attr { return Attr{Key: key, n: value, num: true} }

// Kind is what a span has to do with others.
type Kind uint8

// The kinds, with OTLP's numbers.
const (
	Internal Kind = 1
	Client   Kind = 3
	Producer Kind = 4
)

// Span is one span. Times are milliseconds since 1970.
type Span struct {
	Trace      traceid.Trace
	ID, Parent traceid.Span // no parent: zero
	Name       string
	Kind       Kind
	Start, End int64
	Attrs      []Attr
	Failed     bool
	Error      string
}

// The fields of the messages in opentelemetry/proto/trace/v1/trace.proto and those that they refer to.
const (
	requestSpans = 1

	ofResource, ofScopes = 1, 2 // ResourceSpans
	resourceAttrs        = 1
	ofScope, ofSpans     = 1, 2 // ScopeSpans
	scopeName            = 1

	spanTrace, spanID, spanParent, spanName, spanKind = 1, 2, 4, 5, 6
	spanStart, spanEnd, spanAttrs, spanStatus         = 7, 8, 9, 15

	statusMessage, statusCode = 2, 3
	codeError                 = 2

	keyName, keyValue   = 1, 2 // KeyValue
	valueText, valueInt = 1, 3 // AnyValue
)

func appendBytes[T string | []byte](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendTime(b []byte, field protowire.Number, ms int64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(max(ms, 0))*1e6)
}

func appendAttrs(b []byte, field protowire.Number, attrs []Attr) []byte {
	for _, a := range attrs {
		var value []byte
		if a.num {
			value = appendNumber(nil, valueInt, uint64(a.n))
		} else {
			value = appendBytes(nil, valueText, a.text)
		}
		b = appendBytes(b, field, appendBytes(appendBytes(nil, keyName, a.Key), keyValue, value))
	}
	return b
}

func (s *Span) encode() []byte {
	b := appendBytes(make([]byte, 0, 384), spanTrace, s.Trace[:])
	b = appendBytes(b, spanID, s.ID[:])
	if s.Parent != (traceid.Span{}) {
		b = appendBytes(b, spanParent, s.Parent[:])
	}
	b = appendBytes(b, spanName, s.Name)
	b = appendNumber(b, spanKind, uint64(s.Kind))
	b = appendTime(b, spanStart, s.Start)
	b = appendTime(b, spanEnd, max(s.Start, s.End))
	b = appendAttrs(b, spanAttrs, s.Attrs)
	if s.Failed {
		var status []byte
		if s.Error != "" {
			status = appendBytes(status, statusMessage, s.Error)
		}
		b = appendBytes(b, spanStatus, appendNumber(status, statusCode, codeError))
	}
	return b
}

// request is an ExportTraceServiceRequest.
func request(resource []Attr, spans [][]byte) []byte {
	scope := appendBytes(nil, ofScope, appendBytes(nil, scopeName, "carillon"))
	for _, s := range spans {
		scope = appendBytes(scope, ofSpans, s)
	}
	of := appendBytes(nil, ofResource, appendAttrs(nil, resourceAttrs, resource))
	return appendBytes(nil, requestSpans, appendBytes(of, ofScopes, scope))
}

// rejected is how many spans the receiver did not take, of an ExportTraceServiceResponse, and why.
func rejected(answer []byte) (n int64, why string) {
	fields(answer, func(field protowire.Number, partial []byte, _ uint64) {
		if field != 1 {
			return
		}
		fields(partial, func(field protowire.Number, text []byte, v uint64) {
			switch field {
			case 1:
				n = int64(v)
			case 2:
				why = string(text)
			}
		})
	})
	return max(n, 0), why
}

// fields calls fn for each field of a message, as far as it is one.
func fields(b []byte, fn func(field protowire.Number, text []byte, v uint64)) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var text []byte
		var v uint64
		switch kind {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return
		}
		b = b[n:]
		fn(field, text, v)
	}
}

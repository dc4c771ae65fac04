package job

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// DecodeSpec reads a job as its owner writes it. It is DecodeStrict of a Spec, and for what most jobs look like much
// faster.
func DecodeSpec(data []byte) (Spec, error) {
	var s Spec
	if len(data) > usualSpec {
		if err := CheckSize(data, &s); err != nil {
			return s, err
		}
	}
	if s, ok := plainSpec(data); ok {
		return s, nil
	}
	err := DecodeStrict(data, &s)
	return s, err
}

// usualSpec is up to what size a job is read without a look at how many values it has: bulk creates have many of them.
const usualSpec = 4 << 10

// plainSpec reads a job that looks like most. What it reads, DecodeStrict would read as the same.
func plainSpec(data []byte) (s Spec, ok bool) {
	t := jsontext.Reader{B: data}
	readSpec(&t, &s)
	return s, t.Ended()
}

func readDuration(t *jsontext.Reader) Duration {
	d, err := time.ParseDuration(string(t.Str()))
	t.Bad = t.Bad || err != nil
	return Duration(d)
}

func readInstant(t *jsontext.Reader) (i Instant) {
	if raw := t.Raw(); t.Bad || i.UnmarshalJSON(raw) != nil {
		t.Bad = true
	}
	return i
}

// Word is a string of a job. One that many jobs have in common takes no memory of its own.
func Word(b []byte) string {
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

func readWords(t *jsontext.Reader) []string {
	out := []string{}
	t.List(func() { out = append(out, Word(t.Str())) })
	return out
}

// AppendJSON appends a job as encoding/json would write it, without reflection: every create is answered with one. It
// says false of a job that has something out of the ordinary, which is left to that package.
func (j *Job) AppendJSON(b []byte) ([]byte, bool) {
	w := jsontext.Writer{B: b}
	w.Begin()
	writeJob(&w, j)
	w.End()
	return w.B, !w.Bad
}

func someDuration(w *jsontext.Writer, name string, d Duration) {
	if d != 0 {
		w.Str(name, d.String())
	}
}

func someInstant(w *jsontext.Writer, name string, i Instant) {
	if i != 0 {
		w.Str(name, i.String())
	}
}

func writeInstant(w *jsontext.Writer, name string, i Instant) {
	if i == 0 {
		w.Null(name)
		return
	}
	w.Str(name, i.String())
}

package store

import "testing"

func TestPauses(t *testing.T) {
	var p Pauses
	for i := range int64(MaxPauses) {
		p.Add(Span{10 * (i + 1), 10*(i+1) + 5})
	}
	p.Add(Span{70, 60}) // the clock was reset
	for at, in := range map[int64]bool{10: false, 11: true, 15: true, 16: false, 45: true, 46: false, 65: false} {
		if _, ok := p.At(at); ok != in {
			t.Errorf("%d is in a pause: %t", at, ok)
		}
	}
	p.Add(Span{60, 65}) // one too many: it becomes one with the last
	if s, ok := p.At(50); !ok || s != (Span{40, 65}) || !p.ordered() {
		t.Errorf("got %v", p)
	}
	s := State{Paused: true, PausedAt: 99, Pauses: p}
	if got, err := DecodeState(s.Encode()); err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	if p.Pass(26); p != (Pauses{{30, 35}, {40, 65}}) {
		t.Errorf("got %v", p)
	}
	if p.Pass(65); p != (Pauses{{40, 65}}) {
		t.Errorf("got %v", p)
	}
	p.Add(Span{65, 70})
	if p.Pass(70); p != (Pauses{{40, 70}}) {
		t.Errorf("got %v", p)
	}
	if p.Pass(71); p != (Pauses{}) {
		t.Errorf("got %v", p)
	}
}

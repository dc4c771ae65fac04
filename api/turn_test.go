package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// watched is an answer, and its writer, that see whether the turn they are made in has ended.
type watched struct {
	http.ResponseWriter
	t     *testing.T
	ended *bool
	seen  int
}

func (v *watched) MarshalJSON() ([]byte, error) {
	if v.seen++; *v.ended {
		v.t.Error("the turn of an expensive read ends before its answer is encoded")
	}
	return []byte("{}"), nil
}

func (v *watched) Write(p []byte) (int, error) {
	if v.seen++; !*v.ended {
		v.t.Error("the turn of an expensive read lasts until its answer is read")
	}
	return v.ResponseWriter.Write(p)
}

// To encode an answer costs more than to compute it, so it belongs to the turn; to be read may take for ever, and does
// not.
func TestTurnLastsUntilTheAnswerIsEncoded(t *testing.T) {
	ended := false
	w := &watched{ResponseWriter: httptest.NewRecorder(), t: t, ended: &ended}
	c := &call{w: w, r: httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)}
	ctx := context.WithValue(t.Context(), turnKey{}, &c.turn)
	KeepTurn(ctx, func() { ended = true })() // as a backend does when it has computed its answer
	if err := c.reply(http.StatusOK, w); err != nil || !ended || w.seen != 2 {
		t.Errorf("%v, ended %v, seen %d times", err, ended, w.seen)
	}
	ended = false
	KeepTurn(ctx, func() { ended = true })
	if EndTurn(ctx); !ended {
		t.Error("a turn does not end before another one is waited for")
	}
	ended = false
	if KeepTurn(t.Context(), func() { ended = true })(); !ended {
		t.Error("where nothing is encoded, a turn does not end when the answer was computed")
	}
}

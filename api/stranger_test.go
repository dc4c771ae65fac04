package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// Who shows no token asks only so often, from one address and in all; an address that asks now and then is not kept out
// by a flood from others.
func TestStrangersAreBounded(t *testing.T) {
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for _, joins := range []bool{true, false} {
		told := map[Refusal]int{}
		b := newBounds(Limits{Joins: 60, Refused: func(r Refusal, _ string) { told[r]++ }})
		of, why := 60, RefusedJoins
		if !joins {
			of, why = 5*strangerReads, RefusedReads
		}
		ask := func(from netip.Addr) error {
			leave, err := b.stranger(from, joins)
			if err == nil {
				leave()
			}
			return err
		}
		passed := 0
		for ask(addr(0)) == nil {
			passed++
		}
		if passed < of || passed > 2*of || told[why] != 1 {
			t.Errorf("%s: %d passed from one address, told %v", why, passed, told)
		}
		if err := ask(addr(0)); job.CodeOf(err) != job.CodeTooManyRequests {
			t.Errorf("%s: %v", why, err)
		}
		all := 0
		for from := 1; from <= 2*allStrangers; from++ { // twice of what all may
			for i := 0; i < of && ask(addr(from)) == nil; i++ {
				all++
			}
		}
		if all > 2*allStrangers*of*3/4 {
			t.Errorf("%s: %d passed in all", why, all)
		}
		if err := ask(addr(1 << 20)); err != nil {
			t.Errorf("%s: an address that asks once: %v", why, err)
		}
		if _, err := b.stranger(netip.Addr{}, joins); err != nil {
			t.Errorf("%s: what a node passes on: %v", why, err)
		}
	}
}

// unknown refuses every token.
type unknown struct{ Auth }

func (unknown) Refused(*http.Request, error) {}

// What a node passes on for a stranger is read as far as a stranger's, and is none of what nodes ask each other.
func TestPassedOnForAStranger(t *testing.T) {
	served := 0
	h := Authorize(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}), unknown{}, "n1", Limits{}, Endpoint{"/internal/x", Node, NoBody, nil})
	send := func(path string, size int64, headers ...string) int {
		r := httptest.NewRequest("POST", path, strings.NewReader(strings.Repeat("x", membudget.MostOfStranger+100)))
		r.ContentLength = size
		r = r.WithContext(keys.WithPeer(r.Context(), keys.Peer{Identity: keys.Identity{Node: "n2"}}))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, size := range []int64{membudget.MostOfStranger + 100, -1} {
		if got := send(prefix+"/cluster:join", size, wire.ForwardedHeader, "n2"); got != 413 {
			t.Errorf("%d bytes of a stranger: %d", size, got)
		}
	}
	served = 0
	if got := send("/internal/x", 1, wire.ForwardedHeader, "n2", wire.AddressHeader, ""); got != 403 || served != 0 {
		t.Errorf("what only nodes ask was passed on: %d", got)
	}
	if got := send("/internal/x", 1, wire.ForwardedHeader, "n2"); got == 403 || served != 1 {
		t.Errorf("a node that asks for itself: %d", got)
	}
}

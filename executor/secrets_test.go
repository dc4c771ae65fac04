//go:build linux

package executor

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

const secretValue = "correct-horse-battery"

// leaks says whether a text has a part of the value that is too long to be there by chance.
func leaks(text string) bool {
	for i := 0; i+5 <= len(secretValue); i++ {
		if strings.Contains(text, secretValue[i:i+5]) {
			return true
		}
	}
	return false
}

// A value is masked before an answer is cut: wherever it stands, no part of it is left at the bounds of what is kept,
// of the answer (4 KiB) and of its beginning in an error (512 bytes).
func TestHTTPMasksBeforeItCuts(t *testing.T) {
	h := newTestHTTP(t, HTTPOptions{})
	at, many := 0, 0
	srv := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		// Those in front become shorter, so that what is behind the bound moves before it.
		fmt.Fprint(w, strings.Repeat(secretValue+" ", many), strings.Repeat("x", at), secretValue, strings.Repeat("y", 9000))
	})
	a := httpJob(t, map[string]any{"url": srv.URL, "headers": map[string]string{"X": secretValue}})
	a.Secrets = []string{secretValue}
	for _, many = range []int{0, 3, 250} {
		for _, bound := range []int{errorBodyBytes, job.MaxOutputBytes, job.MaxOutputBytes + 40} {
			for at = max(0, bound-2*len(secretValue)); at < bound+4; at++ {
				if r := h.Run(t.Context(), a); leaks(r.Output) || leaks(r.Error) || len(r.Output) > job.MaxOutputBytes || r.Output == "" {
					t.Fatalf("%d values and %d bytes before it: %q … %q, %q", many, at, r.Output[:min(40, len(r.Output))], r.Output[max(0, len(r.Output)-60):], r.Error)
				}
			}
		}
	}
}

// A redirect is followed to the hosts of the job's secrets only.
func TestHTTPRedirectsAwayFromTheHostsOfSecrets(t *testing.T) {
	h := newTestHTTP(t, HTTPOptions{})
	other := newTarget(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "other") })
	srv := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL+"/"+secretValue, http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	})
	run := func(path string, hosts ...string) job.Result {
		a := httpJob(t, map[string]any{"url": srv.URL + path})
		a.Secrets, a.Hosts = []string{secretValue}, hosts
		return h.Run(t.Context(), a)
	}
	own := srv.Listener.Addr().String()
	if r := run("/away", own); r.Outcome != job.OutcomeFailed || !r.Permanent || !strings.Contains(r.Error, "not a host that the secrets") ||
		len(other.requests()) != 0 {
		t.Errorf("%+v", r)
	}
	if r := run("/here", own); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("%+v", r)
	}
	if r := run("/away"); r.Outcome != job.OutcomeSucceeded || len(other.requests()) != 1 {
		t.Errorf("%+v", r)
	}
}

// What a command prints is masked on its way into what is kept and watched, also in pieces, and where the ring begins.
func TestShellMasks(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	a := shellJob(t, job.ShellPayload{Env: map[string]string{"K": secretValue},
		Command: `printf 'one '; printf '%s' "$K" | head -c 9; sleep 0.1; printf '%s' "$K" | tail -c +10; echo " two"; echo "$K" >&2
			i=0; while [ $i -lt 1000 ]; do printf '%s%d' "$K" $i; i=$((i+1)); done; printf '%s' "$K" | head -c 12; exit 1`})
	a.Secrets = []string{secretValue}
	r := s.Run(t.Context(), a)
	// The last line is the beginning of the value and nothing more: that it is one cannot be known.
	if text, ok := strings.CutSuffix(r.Output, secretValue[:12]); !ok || leaks(text) || !strings.Contains(text, "999") {
		t.Errorf("%q", r.Output)
	}
}

package notify

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/egress"
)

// TestWebhookDenied: a receiver that a job names by its URL is judged, one of the operator is not. Both are told that
// the request was made for a job.
func TestWebhookDenied(t *testing.T) {
	var mu sync.Mutex
	var marks, dialled []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		marks = append(marks, r.Header.Get(egress.Header))
	}))
	defer srv.Close()
	policy, err := egress.New(egress.Options{Control: func(_, address string) error {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, address)
		if !strings.HasPrefix(address, "127.0.0.1:") {
			return errors.New("recorded, not connected")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPoster(&Settings{Egress: policy, Webhooks: map[string]string{"ops": srv.URL + "/ops"}})
	for _, url := range []string{srv.URL + "/ops", srv.URL + "/other", "http://169.254.169.254/secret",
		"https://[::1]/secret"} {
		r := p.Post(t.Context(), url, false, testMessage())
		if r.Outcome != Permanent || !strings.Contains(r.Err.Error(), "egress denied: ") ||
			strings.Contains(r.Err.Error(), "secret") {
			t.Errorf("%s: %+v", url, r)
		}
	}
	if len(dialled) != 0 {
		t.Errorf("dialled %v", dialled)
	}
	if r := p.Post(t.Context(), srv.URL+"/ops", true, testMessage()); r.Outcome != Sent {
		t.Errorf("%+v", r)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(marks) != 1 || marks[0] != egress.HeaderValue || len(dialled) != 1 {
		t.Errorf("marked %q, dialled %v", marks, dialled)
	}
}

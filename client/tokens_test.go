package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// Who calls a secure cluster without a token is told so: what its port answers to plain HTTP is no answer of the API.
func TestWithoutATokenOfASecureCluster(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This port speaks TLS: use https.", http.StatusBadRequest)
	}))
	defer srv.Close()
	_, err := client.New(srv.Listener.Addr().String()).Status(t.Context())
	if job.CodeOf(err) != job.CodeUnauthenticated || !strings.Contains(err.Error(), "carillon login") {
		t.Error(err)
	}
}

// A token that names a CA is shown to nodes of that cluster only, and one that is damaged to none at all.
func TestTokenIsShownToItsClusterOnly(t *testing.T) {
	asked := 0
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ })
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	token := keys.NewToken(keys.APIToken, keys.Hash{1}).Text()
	for _, srv := range []*httptest.Server{plain, secure} {
		if _, err := client.New(srv.Listener.Addr().String(), client.WithToken(token), client.WithAttempts(1)).Whoami(t.Context()); err == nil {
			t.Errorf("%s was taken for a node", srv.URL)
		}
	}
	if _, err := client.New(plain.Listener.Addr().String(), client.WithToken(token[:20])).Whoami(t.Context()); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
	if _, err := client.New(plain.URL, client.WithToken(token)).Whoami(t.Context()); job.CodeOf(err) != job.CodeInvalid || !strings.Contains(err.Error(), "https://") {
		t.Error(err)
	}
	if _, err := client.NewLeader([]string{plain.URL}, client.WithLeaderToken(token)).Poll(t.Context(), job.Poll{}); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
	if asked != 0 {
		t.Errorf("%d requests arrived", asked)
	}
}

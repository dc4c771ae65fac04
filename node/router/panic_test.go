package router_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node/router"
)

// A group whose handler panics ends neither the node nor the space of its log.
func TestPanicsOfGroups(t *testing.T) {
	var log bytes.Buffer
	rt := router.New(router.Options{
		Groups: func() []uint32 { return []uint32{1, 2} },
		Handler: func(uint32) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 100 {
		if rec := call(t, rt, "GET", "/queues", "", nil); rec.Code != http.StatusInternalServerError {
			t.Fatal(rec.Code, rec.Body)
		}
	}
	if n := strings.Count(log.String(), "panic in a request"); n == 0 || n > 20 {
		t.Errorf("%d of 100 panics are logged", n)
	}
}

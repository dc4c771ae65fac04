package apitest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// A name that paths take for a directory, and an empty one, are refused: ServeMux would redirect to another route, and a DELETE of ".." or
// an empty name would be about something else.
func TestPathsThatLoseANameAreRefused(t *testing.T) {
	h := api.New(empty(t).Backend, api.Options{})
	for _, path := range []string{"/jobs/.", "/jobs/..", "/jobs/%2e%2e", "/jobs/../runs", "/jobs//runs", "/jobs/./runs", "/queues/..", "/calendars/%2E", "/jobs/..:pause", "/jobs/:pause", "/runs//output"} {
		for _, method := range []string{"GET", "DELETE", "POST", "PUT"} {
			rec := httptest.NewRecorder()
			r := httptest.NewRequest(method, "http://127.0.0.1/api/v1"+path, nil)
			h.ServeHTTP(rec, r)
			if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), string(job.CodeInvalid)) {
				t.Errorf("%s %s: %d %s %s", method, path, rec.Code, rec.Header().Get("Location"), rec.Body)
			}
		}
	}
	for _, path := range []string{"/jobs/...", "/jobs/.a", "/jobs/a..b"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1/api/v1"+path, nil))
		if rec.Code != http.StatusNotFound || !strings.Contains(rec.Body.String(), "there is no job") {
			t.Errorf("%s is a name like any other: %d %s", path, rec.Code, rec.Body)
		}
	}
}

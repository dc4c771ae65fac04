package guard

import (
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/internal/membudget"
)

// bodyTimeout is how long a body may take.
const bodyTimeout = 30 * time.Second

// Bounded reads the bodies of requests before they are served: up to so many bytes, in time, and within the budget.
func Bounded(next http.HandlerFunc, most int64, refuse Refuse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // unsupported is fine
		if _, err := membudget.ReadBody(r, most); err != nil {
			w.Header().Set("Connection", "close") // the rest of it is no request
			refuse(w, membudget.Explain(err, most))
			return
		}
		_ = rc.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
		next(w, r)
	}
}

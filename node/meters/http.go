package meters

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
)

var httpBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newHTTP() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_http_request_duration_seconds", Buckets: httpBuckets,
		Help: "How long requests of clients took on the node that they came to, by route. " +
			"Without long polls, streams, and what nodes ask each other.",
	}, []string{"route", "method", "code"})
}

// otherRoute stands for all paths and methods that the table of routes does not have: anyone can make up those.
const otherRoute = "other"

// Timed measures the requests that come to a node. One that the node passes on is measured here, with all of its way,
// and not where it is answered: then it would be there twice.
func (m *Meters) Timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.ForwardedHeader) != "" || strings.HasPrefix(r.URL.Path, "/internal/") {
			next.ServeHTTP(w, r)
			return
		}
		method, route, waits := api.Template(r)
		if waits {
			next.ServeHTTP(w, r)
			return
		}
		if route == "" {
			method, route = otherRoute, otherRoute
		}
		answer := &answer{ResponseWriter: w}
		began := time.Now()
		next.ServeHTTP(answer, r)
		m.http.WithLabelValues(route, method, strconv.Itoa(answer.code())).Observe(time.Since(began).Seconds())
	})
}

// answer remembers the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK // that is what net/http says if a handler does not
	}
	return a.status
}

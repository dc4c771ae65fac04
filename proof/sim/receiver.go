package sim

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// hooksURL is where notifications go.
const hooksURL = "http://hooks:7400/told"

// receive writes down every notification that arrives. In some plans it cannot take some of them now, and others it
// does not want; the rest it takes, so that one which comes again was sent again.
func (c *cluster) receive(at *network.Host) {
	ln, err := at.Listen("")
	if err != nil {
		panic(err)
	}
	c.hooks = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m notify.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			c.event("a notification broke off: %v", err)
			return
		}
		c.rec.mu.Lock()
		status := c.receives(len(c.rec.told))
		c.rec.told = append(c.rec.told,
			checker.Notified{At: c.rec.t.instant(), Key: r.Header.Get("Idempotency-Key"), Job: m.JobID,
				Failure: m.Kind == job.NotifyFailure, Run: m.RunID, Status: m.Status,
				Refused: status == http.StatusServiceUnavailable})
		c.rec.mu.Unlock()
		w.WriteHeader(status)
		if c.o.hooks > 0 {
			select {
			case <-time.After(rand.N(c.o.hooks)):
			case <-r.Context().Done(): // the simulation ends, and its time with it
			}
		}
	})}
	c.bg.Go(func() { c.hooks.Serve(ln) })
}

// receives is how the receiver answers the n-th notification that arrives.
func (c *cluster) receives(n int) int {
	select {
	case <-c.rec.calm:
		return http.StatusOK
	default:
	}
	switch dice := rand.New(rand.NewPCG(c.seed, 1000+uint64(n))); {
	case chance(dice, c.o.refuses):
		return http.StatusServiceUnavailable
	case chance(dice, c.o.refuses/4):
		return http.StatusBadRequest
	}
	return http.StatusOK
}

package api

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A token for queues is for runs of the type queue, unless it says more: those of other types are in no queue.
func TestQueuesOfATokenAreForQueueRuns(t *testing.T) {
	for _, c := range []struct {
		types, queues []string
		asks          job.Type
		ok            bool
	}{
		{nil, []string{"mail"}, job.TypeQueue, true},
		{nil, []string{"mail"}, job.TypeHTTP, false},
		{[]string{"queue", "http"}, []string{"mail"}, job.TypeHTTP, true},
		{[]string{"queue"}, nil, job.TypeHTTP, false},
		{nil, nil, job.TypeHTTP, true},
	} {
		id := &Identity{Name: "mailer"}
		id.Worker.Types, id.Worker.Queues = c.types, c.queues
		err := id.grants(&job.Register{Worker: "w", Slots: 1, Types: []job.Type{c.asks}})
		if c.ok != (err == nil) || err != nil && job.CodeOf(err) != job.CodeForbidden {
			t.Errorf("types %v, queues %v, asks for %s: %v", c.types, c.queues, c.asks, err)
		}
	}
}

package meters

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// Scrapes that wait for each other share what was counted after they came, and none has what was counted before.
func TestPasses(t *testing.T) {
	var p passes
	first, second := p.come(), p.come()
	if !p.next(first) {
		t.Error("the first does not count")
	}
	during := p.come()
	if p.next(second) {
		t.Error("one that came before the count began counts again")
	}
	later := p.come()
	if !p.next(during) {
		t.Error("one that came while another counted has what was counted before it came")
	}
	if p.next(later) {
		t.Error("another that came then counts again")
	}
	if !p.next(p.come()) {
		t.Error("one that comes when all is counted does not count")
	}
}

// Of many queues those with most work are shown, and the rest is counted.
func TestQueuesThatAreShown(t *testing.T) {
	shown := newShown()
	const all = 5*maxQueues + 3
	for i := range all {
		n := i * 7 % all // in no order
		shown.Add(queueUse{key: job.QueueKey{Name: fmt.Sprint(n)}, backlog: int64(n)})
	}
	queues := shown.Rows()
	if len(queues) != maxQueues || shown.Omitted != all-maxQueues {
		t.Fatalf("%d are shown, %d omitted", len(queues), shown.Omitted)
	}
	for i, q := range queues {
		if q.backlog != int64(all-1-i) {
			t.Errorf("%d. is the queue with %d", i, q.backlog)
		}
	}
}

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
	var d due
	const all = 5*maxQueues + 3
	for i := range all {
		n := i * 7 % all // in no order
		d.queues = append(d.queues, queueUse{key: job.QueueKey{Name: fmt.Sprint(n)}, backlog: int64(n)})
		if len(d.queues) >= 2*maxQueues {
			d.omit()
		}
	}
	d.omit()
	if len(d.queues) != maxQueues || d.omitted != all-maxQueues {
		t.Fatalf("%d are shown, %d omitted", len(d.queues), d.omitted)
	}
	for i, q := range d.queues {
		if q.backlog != int64(all-1-i) {
			t.Errorf("%d. is the queue with %d", i, q.backlog)
		}
	}
}

package fsm

import (
	"cmp"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What a PutQueue sets, and when.
const (
	QueueConcurrency uint8 = 1 << iota
	QueuePaused
	// QueueKnown: only if the queue exists, declared or used by a job. A typing error must not make a queue.
	QueueKnown
)

// PutQueue sets something of a queue, and makes its row if it has none. Version, if not 0, is the one that the row must
// have.
type PutQueue struct {
	Head        `codec:"h"`
	Request     Request `codec:"q"`
	Namespace   string  `codec:"ns,omitempty"` // empty: the usual one
	Name        string  `codec:"n"`
	Version     uint64  `codec:"v"`
	Set         uint8   `codec:"s"`
	Concurrency int     `codec:"c"`
	Paused      bool    `codec:"p"`
}

// maxQueues bounds how many queues have a row: all of them are kept in memory.
const maxQueues = 1 << 16

// noRoom says why no run of a class may be claimed now, empty if one may. The leader knows as well and does not ask for
// more; but what it asked for may pass a lower limit or a pause on its way through the log, and then this is what keeps
// the promise.
func (a *applier) noRoom(class uint32) string {
	q, ok := a.b.ClassQueue(class)
	switch {
	case !ok || q.Room() || mutant.On(mutant.IgnoreQueue):
		return ""
	case q.Paused:
		return "the queue " + q.Key().String() + " is paused"
	}
	return fmt.Sprintf("the queue %s has %d of %d runs in hand", q.Key(), q.Claimed, q.Concurrency)
}

func (c *PutQueue) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *PutQueue) do(a *applier) (Outcome, error) {
	key := job.QueueKey{Namespace: cmp.Or(c.Namespace, job.DefaultNamespace), Name: c.Name}
	if !job.NamespaceName(key.Namespace) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("%q is not a namespace", c.Namespace)}, nil
	}
	if !job.QueueName(c.Name) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("%q is not a queue name", c.Name)}, nil
	}
	if c.Set&QueueConcurrency != 0 && (c.Concurrency < 0 || c.Concurrency > job.MaxQueueConcurrency) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("a limit of %d is out of range", c.Concurrency)}, nil
	}
	q := a.b.Queue(key)
	switch {
	case c.Set&QueueKnown != 0 && !q.Known():
		return Outcome{Code: CodeNotFound}, nil
	case c.Version != 0 && c.Version != q.Version: // a queue without a row has version 0
		return Outcome{Code: CodeConflict, Version: q.Version}, nil
	case !q.Declared && a.b.DeclaredQueues() >= maxQueues:
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("there are %d declared queues already", maxQueues)}, nil
	}
	row := q.Queue
	if c.Set&QueueConcurrency != 0 {
		row.Concurrency = c.Concurrency
	}
	if c.Set&QueuePaused != 0 {
		row.Paused = c.Paused
	}
	if q.Declared && row == q.Queue {
		return Outcome{Code: CodeOK, Version: q.Version}, nil
	}
	row.Version, row.UpdatedAt = a.b.C.Index, a.now
	return Outcome{Code: CodeOK, Version: row.Version, Count: 1}, a.b.PutQueue(row)
}

// DeleteQueue removes a queue's row: no limit, and not paused. Version 0: whichever.
type DeleteQueue struct {
	Head      `codec:"h"`
	Request   Request `codec:"q"`
	Namespace string  `codec:"ns,omitempty"` // empty: the usual one
	Name      string  `codec:"n"`
	Version   uint64  `codec:"v"`
}

func (c *DeleteQueue) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *DeleteQueue) do(a *applier) (Outcome, error) {
	key := job.QueueKey{Namespace: cmp.Or(c.Namespace, job.DefaultNamespace), Name: c.Name}
	q := store.QueueUse{}
	if job.QueueName(c.Name) && job.NamespaceName(key.Namespace) {
		q = a.b.Queue(key)
	}
	switch {
	case !q.Declared:
		return Outcome{Code: CodeNotFound}, nil
	case c.Version != 0 && c.Version != q.Version:
		return Outcome{Code: CodeConflict, Version: q.Version}, nil
	}
	return Outcome{Code: CodeOK, Count: 1}, a.b.DeleteQueue(key)
}

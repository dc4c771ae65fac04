package linear

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// History is what clients did and were told.
type History struct {
	began time.Time

	mu      sync.Mutex
	ops     []porcupine.Operation
	unknown int
	clients int
	beside  map[*client.Client]bool // clients of nodes that are cut off just now
	cutOff  CutOffCalls
}

// CutOffCalls counts what nodes were asked while they were cut off.
type CutOffCalls struct {
	Reads, Writes int // that began then
	Answered      int // of the reads: with a job, or with that there is none. They are in the history like all others
}

// NewHistory begins one.
func NewHistory() *History { return &History{began: time.Now()} }

// CutOff says that the nodes of some clients are cut off from now on, or with none that all hear each other again.
func (h *History) CutOff(clients ...*client.Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beside = map[*client.Client]bool{}
	for _, c := range clients {
		h.beside[c] = true
	}
}

// CutOffCalls is what nodes were asked while they were cut off.
func (h *History) CutOffCalls() CutOffCalls {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cutOff
}

// Operations are the calls so far, and how many of them have no answer.
func (h *History) Operations() (ops []porcupine.Operation, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]porcupine.Operation(nil), h.ops...), h.unknown
}

// Count is how many calls are in it.
func (h *History) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

func (h *History) newClient() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients++
	return h.clients - 1
}

// Do makes a call and writes down what it was told. It says false if there was no answer.
func (h *History) Do(ctx context.Context, id int, c *client.Client, in Input) (Output, bool) {
	h.mu.Lock()
	beside := h.beside[c]
	h.mu.Unlock()
	call := int64(time.Since(h.began))
	out, answered, changed := ask(ctx, c, in)
	end := int64(time.Since(h.began))
	if beside {
		h.aside(in, answered)
	}
	if !answered {
		if !changed {
			return out, false // it is certain that nothing happened, and nothing was learned
		}
		out, end = Output{Answer: Unknown}, never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !answered {
		h.unknown++
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: end})
	return out, answered
}

func (h *History) aside(in Input, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case in.Kind != Read:
		h.cutOff.Writes++
	case answered:
		h.cutOff.Answered++
		fallthrough
	default:
		h.cutOff.Reads++
	}
}

// ask makes the call. Without an answer, changed says whether it may have changed something all the same.
func ask(ctx context.Context, c *client.Client, in Input) (out Output, answered, changed bool) {
	var err error
	var j job.Job
	switch in.Kind {
	case Create:
		_, err = c.CreateJob(ctx, spec(in))
	case Read:
		j, err = c.GetJob(ctx, in.Name)
	case Update:
		_, err = c.UpdateJob(ctx, in.Name, spec(in), in.Version)
	case Pause:
		_, err = c.PauseJob(ctx, in.Name)
	case Resume:
		_, err = c.ResumeJob(ctx, in.Name)
	case Delete:
		err = c.DeleteJob(ctx, in.Name, 0)
	}
	if err == nil {
		if in.Kind == Read {
			out.Job = State{Exists: true, Version: j.Version, Value: j.Tags["value"],
				Paused: j.Status == job.StatusPaused}
		}
		return out, true, true
	}
	var known *job.Error
	if errors.As(err, &known) {
		switch known.Code {
		case job.CodeNotFound:
			if in.Kind == Create { // repeated under its key: it was done, and the job was deleted since
				return Output{Answer: Done}, true, true
			}
			return Output{Answer: NotFound}, true, true
		case job.CodeDuplicateName:
			return Output{Answer: Duplicate}, true, true
		case job.CodeVersionConflict, job.CodePrecondition:
			return Output{Answer: Conflict}, true, true
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable:
			return out, false, false // promises that nothing was changed
		}
	}
	return out, false, in.Kind != Read
}

// spec is a job that never runs by itself: what matters here is the definition.
func spec(in Input) job.Spec {
	return job.Spec{Name: in.Name, Type: job.TypeHTTP, Schedule: job.ScheduleManual,
		Payload: []byte(`{"url":"http://127.0.0.1:1/"}`), Tags: map[string]string{"value": in.Value}}
}

// Client calls at random until ctx ends: any node, the names of the moment, and updates of versions that it has read.
func (h *History) Client(ctx context.Context, seed uint64, nodes []*client.Client, names func() []string) {
	rng := rand.New(rand.NewPCG(seed, 5))
	id := h.newClient()
	versions := map[string]uint64{}
	for n := 0; ctx.Err() == nil; n++ {
		all := names()
		in := Input{Name: all[rng.IntN(len(all))], Value: strconv.FormatUint(seed, 10) + "-" + strconv.Itoa(n)}
		switch k := rng.IntN(20); {
		case k < 8:
			in.Kind = Read
		case k < 11:
			in.Kind = Create
		case k < 15:
			in.Kind, in.Version = Update, max(versions[in.Name], 1)
		case k < 17:
			in.Kind = Pause
		case k < 19:
			in.Kind = Resume
		default:
			in.Kind = Delete
		}
		if in.Kind != Create && in.Kind != Update {
			in.Value = ""
		}
		call, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		out, ok := h.Do(call, id, nodes[rng.IntN(len(nodes))], in)
		cancel()
		switch {
		case !ok:
			id = h.newClient() // a client that does not know what became of its call does nothing after it
			time.Sleep(20 * time.Millisecond)
		case in.Kind == Read:
			versions[in.Name] = out.Job.Version
		}
	}
}

// Reader reads from one node until ctx ends, several calls at a time: a node that is cut off, and so may know less than
// it believes. It waits for longer than a node waits for a leader, so that it sees what the node itself says.
func (h *History) Reader(ctx context.Context, seed uint64, node *client.Client, names func() []string) {
	var wg sync.WaitGroup
	for k := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, k))
			id := h.newClient()
			for ctx.Err() == nil {
				all := names()
				call, cancel := context.WithTimeout(context.Background(), 7*time.Second)
				_, ok := h.Do(call, id, node, Input{Kind: Read, Name: all[rng.IntN(len(all))]})
				cancel()
				if !ok {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

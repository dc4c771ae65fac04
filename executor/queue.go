//go:build unix

package executor

import (
	"context"
	"errors"

	"github.com/carillon-scheduler/carillon/job"
)

func init() {
	Register(Kind{
		Kind: job.Kind{Type: job.TypeQueue, Check: job.CheckQueue, Schema: queueSchema,
			Secrets: map[string]job.SecretPlace{"data": job.SecretInData}},
		Submit: []Choice{{
			Flag: Flag{Name: "queue", Help: "put runs into this queue, for the workers that take them from it"},
			With: []Flag{dataFlag},
			Payload: func(in Input) (any, error) {
				data, err := in.JSON("data")
				return job.QueuePayload{Queue: in.Text("queue"), Data: data}, err
			},
		}},
		New: func(t *Tools, o ToolsOptions) (Runner, error) {
			if o.QueueCommand == "" {
				return nil, errors.New("executor: the runs of queues need a command")
			}
			shell, err := t.commands(o)
			return &Queue{Shell: shell, Command: o.QueueCommand, Dir: o.QueueDir}, err
		},
	})
}

// Queue has a command do the runs of queues: it finds the data of its run on standard input, as JSON, and the rest in
// its environment, as a shell job does.
type Queue struct {
	Shell   *Shell
	Command string // for /bin/sh
	Dir     string // where it runs, absolute; empty: home, as shell jobs
}

// Run runs the command to its end, or stops its group when ctx ends.
func (q *Queue) Run(ctx context.Context, a job.Assignment) job.Result {
	var p job.QueuePayload
	if err := job.DecodeStrict(a.Payload, &p); err != nil {
		return permanent("payload: %v", err)
	}
	data := []byte(p.Data)
	if len(data) == 0 {
		data = []byte("null")
	}
	return q.Shell.run(ctx, job.ShellPayload{Command: q.Command, Dir: q.Dir,
		Env: map[string]string{"CARILLON_QUEUE": p.Queue}}, a, append(data, '\n'))
}

const queueSchema = `{
 "title": "QueuePayload",
 "type": "object",
 "description": "Payload of a queue job, handed to the worker that takes the run.",
 "properties": {"queue": {"type": "string", "description": "Name of the queue."}, "data": {"description": "Any JSON."}},
 "additionalProperties": false,
 "required": ["queue"]
}`

//go:build unix

package executor

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
)

// Queue has a command do the runs of queues: it finds the data of its run on standard input, as JSON, and the rest in its
// environment, as a shell job does.
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
	return q.Shell.run(ctx, job.ShellPayload{Command: q.Command, Dir: q.Dir, Env: map[string]string{"CARILLON_QUEUE": p.Queue}}, a, append(data, '\n'))
}

// Package watch waits for what a cluster goes on to do after a command has asked for it.
package watch

import (
	"context"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	look          = 250 * time.Millisecond
	rotationLooks = 40 // of a node that has not heard of it
)

// status is that of the cluster after a while; false: it is not known now, and will be.
func status(ctx context.Context, c *client.Client) (s client.Status, known bool, err error) {
	if !wait.For(ctx, look) {
		return s, false, ctx.Err()
	}
	s, err = c.Status(client.WithRaw(ctx, func([]byte) {}))
	switch job.CodeOf(err) {
	case job.CodeNoLeader, job.CodeNotReady, job.CodeUnavailable:
		return s, false, nil
	}
	return s, err == nil, err
}

// Rotation waits until a rotation is finished. The node that is asked may be behind the leader, which has begun it:
// that it says nothing of a rotation is no sign of its end.
func Rotation(ctx context.Context, c *client.Client, r *client.Rotation) error {
	next, unheard := r.Next, 0
	for r.Next != "" {
		s, known, err := status(ctx, c)
		switch {
		case err != nil:
			return err
		case !known:
		case s.CA == next:
			*r = client.Rotation{CA: next}
		case s.Rotation != nil && s.Rotation.Next == next:
			*r, unheard = *s.Rotation, rotationLooks
		default:
			if unheard++; unheard >= rotationLooks {
				return job.Errorf(job.CodeState, "see who did with `carillon audit --action cluster`",
					"the rotation to the CA %s was given up", next)
			}
		}
	}
	return nil
}

// RotationText says how far a rotation is, if there is one.
func RotationText(r *client.Rotation) string {
	if r == nil {
		return ""
	}
	text := "the CA " + r.Next + " takes the place of " + r.CA
	if len(r.Missing) > 0 {
		text += "; still to come: " + strings.Join(r.Missing, ", ")
	}
	return text
}

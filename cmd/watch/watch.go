// Package watch waits for what a cluster goes on to do after a command has asked for it.
package watch

import (
	"context"
	"fmt"
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
				return job.Errorf(job.CodeState, "`carillon audit --action cluster` shows who did that",
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
	text := "the CA " + r.Next + " replaces " + r.CA
	if len(r.Missing) > 0 {
		text += "; still to come: " + strings.Join(r.Missing, ", ")
	}
	return text
}

// Growth waits until a cluster has as many groups as it is to have, and tells how far it is. A node that has not heard
// of it knows of fewer groups.
func Growth(ctx context.Context, c *client.Client, g *client.Growth, tell func(string)) error {
	told := map[string]bool{}
	for !g.Done {
		for _, text := range progress(*g) {
			if !told[text] {
				tell(text)
			}
			told[text] = true
		}
		s, known, err := status(ctx, c)
		if err != nil {
			return err
		}
		have := 0
		for _, group := range s.Groups {
			if group.ID != 0 {
				have++
			}
		}
		switch {
		case !known:
		case s.Growth != nil && s.Growth.Want == g.Want:
			*g = *s.Growth
		case have >= g.Want:
			*g = client.Growth{Groups: g.Want, Want: g.Want, Done: true, New: []client.NewGroup{}}
		}
	}
	return nil
}

// GrowthText says what a cluster has, or is to have. already: it had it before it was asked.
func GrowthText(g client.Growth, already bool) string {
	switch {
	case already && g.Groups == 1:
		return "it has 1 group already: nothing to do"
	case already:
		return fmt.Sprintf("it has %d groups already: nothing to do", g.Groups)
	case g.Done:
		return fmt.Sprintf("%d groups take new jobs", g.Groups)
	}
	return fmt.Sprintf("the cluster grows from %d to %d groups; `carillon status` shows how far it is", g.Groups,
		g.Want)
}

// progress says how far each new group is, and what is waited for.
func progress(g client.Growth) (lines []string) {
	for _, n := range g.New {
		if n.State == "begun" {
			lines = append(lines, fmt.Sprintf("group %d has begun, on %s", n.ID, strings.Join(n.Replicas, ", ")))
		}
	}
	if g.Waiting != "" {
		lines = append(lines, "waiting: "+g.Waiting)
	}
	return lines
}

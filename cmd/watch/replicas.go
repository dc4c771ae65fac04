package watch

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// replicaLook is between two looks at replicas, each of which asks the nodes that have them.
const replicaLook = 500 * time.Millisecond

// passing says that an error is one that a cluster gives while it changes its leader.
func passing(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable, job.CodeOutcomeUnknown,
		job.CodeTooManyRequests:
		return true
	}
	return false
}

// follow asks until it is done. What is said changes only when there is something new. An error of the first time is
// the end: nothing was begun.
func follow(ctx context.Context, w io.Writer, goesOn string, ask func() (done bool, text string, err error)) error {
	said := ""
	for first := true; ; first = false {
		done, text, err := ask()
		if ctx.Err() != nil && !first {
			fmt.Fprintln(w, goesOn)
			return ctx.Err()
		}
		switch {
		case err != nil && (first || !passing(err)):
			return err
		case err != nil:
			text = err.Error()
		case done:
			return nil
		}
		if text != said {
			said = text
			fmt.Fprintln(w, text)
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(w, goesOn)
			return ctx.Err()
		case <-time.After(replicaLook):
		}
	}
}

// Remove takes a node out of the cluster. If it has replicas of groups, other nodes are given them first.
func Remove(ctx context.Context, c *client.Client, id string, w io.Writer) error {
	return follow(ctx, w, id+" is still leaving; `carillon cluster remove "+id+"` waits for it again",
		func() (bool, string, error) {
			r, err := c.BeginRemoval(ctx, id)
			return r.Removed, id + " is leaving: " + job.GroupNames(r.Groups...) + " still to hand over", err
		})
}

// Move has a group be on other nodes. Without wait it says how far that is.
func Move(ctx context.Context, c *client.Client, rq client.MoveGroupRequest, wait bool, w io.Writer) (
	r client.GroupMove, err error) {
	if !wait {
		return c.MoveGroup(ctx, rq)
	}
	n := strconv.FormatUint(uint64(rq.Group), 10)
	err = follow(ctx, w, "the move of group "+n+" goes on; `carillon status` shows it", func() (bool, string, error) {
		at, err := c.MoveGroup(ctx, rq)
		if err == nil {
			r = at
		}
		return at.Done, MoveText(at), err
	})
	return r, err
}

// MoveText is how far a move is.
func MoveText(r client.GroupMove) string {
	if r.Done {
		return fmt.Sprintf("group %d is on %s", r.Group, strings.Join(r.To, ", "))
	}
	var parts []string
	add := func(nodes []string, one, several string) {
		if len(nodes) == 1 {
			parts = append(parts, nodes[0]+" "+one)
		} else if len(nodes) > 1 {
			parts = append(parts, strings.Join(nodes, ", ")+" "+several)
		}
	}
	add(r.Voting, "votes", "vote")
	add(r.Adding, "catches up", "catch up")
	add(r.Leaving, "leaves", "leave")
	if r.Problem != "" {
		parts = append(parts, r.Problem)
	}
	return fmt.Sprintf("group %d: %s", r.Group, strings.Join(parts, "; "))
}

// GroupNumber reads the number of a group.
func GroupNumber(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > job.MaxGroups {
		return 0, job.Invalid("GROUP", "`carillon status` lists them", "%q is not the number of a group", text)
	}
	return uint32(n), nil
}

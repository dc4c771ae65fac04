package watch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// stoppedLooks is how often a leader is asked that has stopped because its own state differs, until another one leads.
const stoppedLooks = 20

// Scrubbed is what a comparison of the replicas' states found.
type Scrubbed struct {
	client.ScrubStatus
	Troubles []client.Trouble `json:"troubles"` // of the nodes that were found, or could not be compared
}

// Sound says that all voting replicas were compared and agree.
func (s *Scrubbed) Sound() bool {
	return len(s.Troubles) == 0 && !slices.ContainsFunc(s.Groups, func(g client.GroupScrub) bool {
		return len(g.Differ)+len(g.Missing) > 0 || g.Split != ""
	})
}

// Scrub has all groups compare the states of their replicas, and waits until they have. If a group gets a new leader
// meanwhile, its comparison begins anew, because the result is in the memory of the leader that was asked.
func Scrub(ctx context.Context, c *client.Client, w io.Writer) (out Scrubbed, err error) {
	asked, looks := map[uint32]client.GroupScrub{}, 0
	stopped := "the comparison goes on; `carillon status` shows what it finds"
	err = follow(ctx, w, stopped, func() (bool, string, error) {
		var s client.ScrubStatus
		var err error
		if len(asked) == 0 {
			s, err = c.Scrub(ctx)
		} else {
			s, err = c.ScrubStatus(ctx)
		}
		if looks++; job.CodeOf(err) == job.CodeStopped && len(out.Groups) > 0 && looks < stoppedLooks {
			return false, "the leader has stopped; another one is awaited", nil
		} else if err != nil {
			return false, "", err
		}
		looks, out.ScrubStatus = 0, s
		done, bytes, of := true, int64(0), int64(0)
		for _, g := range s.Groups {
			if was, ok := asked[g.Group]; ok && (was.Leader != g.Leader || g.Pass < was.Pass) {
				clear(asked)
				return false, fmt.Sprintf("%s leads group %d now: comparing from the beginning", g.Leader, g.Group), nil
			}
			done, of = done && g.Done, of+g.Of
			if bytes += g.Bytes; g.Done {
				bytes += g.Of - g.Bytes
			}
		}
		if len(asked) == 0 {
			for _, g := range s.Groups {
				asked[g.Group] = g
			}
		}
		return done, fmt.Sprintf("comparing the states of all replicas: %d%%", bytes*100/max(of, 1)/10*10), nil
	})
	if err != nil {
		return out, err
	}
	s, err := c.Status(ctx)
	out.Troubles = []client.Trouble{}
	for _, t := range s.Troubles {
		if t.Code == "stopped" || t.Code == "states_differ" || t.Node != "" && out.missing(t.Node) {
			out.Troubles = append(out.Troubles, t)
		}
	}
	return out, err
}

func (s *Scrubbed) missing(node string) bool {
	return slices.ContainsFunc(s.Groups, func(g client.GroupScrub) bool { return slices.Contains(g.Missing, node) })
}

// Text is what was found, a line each.
func (s *Scrubbed) Text() (lines []string) {
	for _, g := range s.Groups {
		in := ""
		if len(s.Groups) > 1 {
			in = fmt.Sprintf("group %d: ", g.Group)
		}
		switch {
		case g.Split != "":
			lines = append(lines, in+g.Split+" ("+strings.Join(g.Differ, ", ")+")")
		case len(g.Differ) > 0:
			lines = append(lines, in+"the state of "+strings.Join(g.Differ, " and ")+" is not that of most; it stops")
		}
		if len(g.Missing) > 0 {
			lines = append(lines, in+"not compared, or not all of it: "+strings.Join(g.Missing, ", "))
		}
	}
	for _, t := range s.Troubles {
		line := "! " + t.Text
		if t.Remedy != "" {
			line += ": " + t.Remedy
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = []string{"all voting replicas agree"}
	}
	return lines
}

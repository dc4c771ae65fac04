package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// Cluster is several processes that are one scheduler.
type Cluster struct {
	Nodes []*Node

	tb testing.TB
}

// NewCluster starts n nodes on fresh directories and waits until all of them vote.
func NewCluster(tb testing.TB, binary string, n int, flags ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range n {
		node := NewNode(tb, binary, filepath.Join(tb.TempDir(), "data"), flags...)
		node.ID = fmt.Sprintf("n%d", i+1)
		if i > 0 {
			node.Join = []string{c.Nodes[0].Addr}
		}
		c.Nodes = append(c.Nodes, node)
		node.Start()
	}
	Eventually(tb, ReadyLimit, fmt.Sprintf("%d voters", n), func() bool {
		s, err := c.Nodes[0].Client.Status(context.Background())
		voters := 0
		for _, m := range s.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		return err == nil && voters == n && len(s.Workers) == n
	})
	return c
}

// NoCluster is one without nodes, for a test that starts them itself.
func NoCluster(tb testing.TB) *Cluster { return &Cluster{tb: tb} }

// Leader waits until one of the living nodes leads and is ready, and nobody claims to lead with a higher term.
func (c *Cluster) Leader() *Node {
	c.tb.Helper()
	var leader *Node
	Eventually(c.tb, ReadyLimit, "a leader that is ready", func() bool {
		var term uint64
		leader = nil
		for _, n := range c.Living() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s, err := n.Stale().Status(ctx)
			cancel()
			if err == nil && s.State == "leader" && s.Ready && s.Term > term {
				leader, term = n, s.Term
			}
		}
		return leader != nil
	})
	return leader
}

// Living are the nodes that have a process.
func (c *Cluster) Living() (living []*Node) {
	for _, n := range c.Nodes {
		if n.Alive() {
			living = append(living, n)
		}
	}
	return living
}

// Others are the living nodes beside one.
func (c *Cluster) Others(not *Node) (others []*Node) {
	for _, n := range c.Living() {
		if n != not {
			others = append(others, n)
		}
	}
	return others
}

// Outages are those of all nodes.
func (c *Cluster) Outages() (all []Outage) {
	for _, n := range c.Nodes {
		all = append(all, n.Outages()...)
	}
	return all
}

// State is what one node itself says that it knows.
type State struct {
	Applied string
	Sum     [sha256.Size]byte
	Text    []byte // jobs, open runs, the first 500 dead letters, history
}

// StateOf reads what a node itself knows of jobs and runs over its interface.
func StateOf(ctx context.Context, n *Node) (s State, err error) {
	c := n.Stale()
	before, err := c.Status(ctx)
	if err != nil {
		return s, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	put := func(v any) { err = errors.Join(err, enc.Encode(v)) }
	for q := (client.JobQuery{Limit: 500}); ; {
		page, lerr := c.ListJobs(ctx, q)
		if lerr != nil {
			return s, lerr
		}
		for _, j := range page.Jobs {
			put(j)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	for q := (client.RunQuery{Limit: 500}); ; {
		page, lerr := c.Runs(ctx, q)
		if lerr != nil {
			return s, lerr
		}
		for _, r := range page.Runs {
			put(r)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	dead, derr := c.DeadLetters(ctx, client.DeadQuery{Limit: 500})
	if derr != nil {
		return s, derr
	}
	put(dead.Dead)
	if xerr := c.ExportHistory(ctx, 0, 0, func(_ job.Run, raw json.RawMessage) error {
		out.Write(raw)
		out.WriteByte('\n')
		return nil
	}); xerr != nil {
		return s, xerr
	}
	after, aerr := c.Status(ctx)
	if aerr != nil {
		return s, aerr
	}
	if before.Raft["applied_index"] != after.Raft["applied_index"] {
		return s, errors.New("it was changing")
	}
	s.Applied, s.Text = after.Raft["applied_index"], out.Bytes()
	s.Sum = sha256.Sum256(s.Text)
	return s, err
}

// Same fails the test unless all nodes come to the same index and there know the same. Nothing may go on meanwhile but the leader's
// clock.
func (c *Cluster) Same(limit time.Duration) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	said := ""
	if Within(limit, func() bool {
		var states []State
		said = ""
		for _, n := range c.Nodes {
			s, err := StateOf(ctx, n)
			if err != nil {
				said = fmt.Sprintf("%s: %v", n.ID, err)
				return false
			}
			states = append(states, s)
		}
		for i, s := range states[1:] {
			if s.Applied != states[0].Applied {
				said = fmt.Sprintf("%s is at %s, %s at %s", c.Nodes[0].ID, states[0].Applied, c.Nodes[i+1].ID, s.Applied)
				return false
			}
			if s.Sum != states[0].Sum {
				said = fmt.Sprintf("%s and %s differ at %s: %s", c.Nodes[0].ID, c.Nodes[i+1].ID, s.Applied, firstDifference(states[0].Text, s.Text))
				return false
			}
		}
		return true
	}) {
		return
	}
	c.tb.Errorf("the nodes are not the same after %s: %s", limit, said)
}

func firstDifference(a, b []byte) string {
	x, y := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n%s\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// StopAndCheck ends all nodes in good order and looks at what they leave behind.
func (c *Cluster) StopAndCheck() {
	c.tb.Helper()
	for _, n := range c.Living() {
		n.Stop()
		if err := Check(n.Binary, n.Dir); err != nil {
			c.tb.Errorf("%s: %v", n.ID, err)
		}
	}
}

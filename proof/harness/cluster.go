package harness

import (
	"bytes"
	"cmp"
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
	return NewClusterAt(tb, binary, n, func(int, *Node) {}, flags...)
}

// NewClusterAt is NewCluster on machines of the caller's choice: place gives a node its address before its first start.
func NewClusterAt(tb testing.TB, binary string, n int, place func(i int, node *Node), flags ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range n {
		node := NewNode(tb, binary, filepath.Join(tb.TempDir(), "data"), flags...)
		node.ID = fmt.Sprintf("n%d", i+1)
		place(i, node)
		if i > 0 {
			node.Join = []string{cmp.Or(c.Nodes[0].Advertise, c.Nodes[0].Addr)}
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

// Leader waits until one of the living nodes leads and is ready, and none claims to lead with a higher term.
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
	Sum  [sha256.Size]byte
	Text []byte // jobs, open runs, the first 500 dead letters, history
}

// StateOf reads what a node itself knows of jobs and runs over its interface.
func StateOf(ctx context.Context, n *Node) (s State, err error) {
	c := n.Stale()
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
	if xerr := c.ExportHistory(ctx, nil, 0, func(_ job.Run, raw json.RawMessage) error {
		out.Write(raw)
		out.WriteByte('\n')
		return nil
	}); xerr != nil {
		return s, xerr
	}
	s.Text = out.Bytes()
	s.Sum = sha256.Sum256(s.Text)
	return s, err
}

// Same fails the test unless all nodes come to know the same, and to the same index. Nothing may go on meanwhile but
// the leader's clock, which is in nothing that is compared. It returns a digest of what each knows.
func (c *Cluster) Same(limit time.Duration) (digests map[string]string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit+30*time.Second)
	defer cancel()
	said := ""
	if !Within(limit, func() bool {
		digests, said = c.difference(ctx)
		return said == ""
	}) {
		c.tb.Errorf("the nodes are not the same after %s: %s", limit, said)
	}
	if !Within(limit, func() bool {
		said = ""
		first := ""
		for _, n := range c.Nodes {
			s, err := n.Stale().Status(ctx)
			if at := s.Raft["applied_index"]; err != nil || first != "" && at != first {
				said = fmt.Sprintf("%s is at %s, the one before at %s (%v)", n.ID, at, first, err)
				return false
			}
			first = s.Raft["applied_index"]
		}
		return true
	}) {
		c.tb.Errorf("the nodes are not at the same index after %s: %s", limit, said)
	}
	return digests
}

// difference says in what the nodes differ.
func (c *Cluster) difference(ctx context.Context) (digests map[string]string, said string) {
	var first State
	digests = map[string]string{}
	for i, n := range c.Nodes {
		s, err := StateOf(ctx, n)
		if err != nil {
			return digests, fmt.Sprintf("%s: %v", n.ID, err)
		}
		digests[n.ID] = fmt.Sprintf("%x", s.Sum[:8])
		if i == 0 {
			first = s
		} else if s.Sum != first.Sum {
			return digests, fmt.Sprintf("%s and %s differ: %s", c.Nodes[0].ID, n.ID,
				firstDifference(first.Text, s.Text))
		}
	}
	return digests, ""
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

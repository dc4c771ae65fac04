package names

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
)

// Path is where the leader of a group is asked by others; wire.GroupHeader names the group.
const Path = "/internal/v1/names"

const (
	// MaxItems is how many names an ask may have of each kind: they become one entry of a log.
	MaxItems = 256
	// MaxMessage is how long an ask or an answer may be.
	MaxMessage = 4 << 20
)

// Call has the leader of a group do something about names. An error says that it may or may not have been done; all of
// it may be repeated.
type Call func(ctx context.Context, group uint32, q *Ask, a *Answer) error

// Ask is what one group wants of another.
type Ask struct {
	From    uint32            `json:"from"`
	Reserve []fsm.ReserveItem `json:"reserve,omitempty"`
	Confirm []fsm.NameItem    `json:"confirm,omitempty"`
	Release []fsm.NameItem    `json:"release,omitempty"`
	Abort   []fsm.NameItem    `json:"abort,omitempty"` // of the home that asks
	Below   uint64            `json:"below,omitempty"` // see fsm.AbortNames
	Uses    *UsesOf           `json:"uses,omitempty"`  // alone

	// Alone: so many groups are to take new jobs, if as many replicas of this one vote.
	Activate uint32 `json:"activate,omitempty"`
	Voters   int    `json:"voters,omitempty"`
}

func (q *Ask) check() error {
	if max(len(q.Reserve), len(q.Confirm), len(q.Release), len(q.Abort)) > MaxItems ||
		len(q.Reserve) > 0 && len(q.Abort) > 0 || max(q.From, q.Activate) > job.MaxGroups {
		return job.Invalid("", "ask for fewer at a time", "this is not a request about names")
	}
	return nil
}

// Answer is what the other one says.
type Answer struct {
	Outcomes []Outcome `json:"outcomes,omitempty"` // of what was to be reserved or aborted
	Below    uint64    `json:"below,omitempty"`    // after a release, see fsm.PaidNames
	Uses     []Use     `json:"uses,omitempty"`
}

// Outcome is what became of one name.
type Outcome struct {
	Code   fsm.Code `json:"code"`
	Job    job.ID   `json:"job,omitempty"`
	Number uint64   `json:"number,omitempty"`
	Group  uint32   `json:"group,omitempty"`
	Text   string   `json:"text,omitempty"`
}

// Serve answers the asks of other nodes. keeper is that of a group; nil: this node has no replica of it.
func Serve(keeper func(group uint32) *Keeper) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, err := serve(w, r, keeper)
		if err != nil {
			api.WriteError(w, forward.Explain(err))
			return
		}
		body, err := json.Marshal(a)
		if err != nil {
			api.WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", wire.MediaJSON)
		w.Write(body) //nolint:errcheck // the caller hung up
	}
}

func serve(w http.ResponseWriter, r *http.Request, keeper func(group uint32) *Keeper) (a Answer, err error) {
	group, err := strconv.ParseUint(r.Header.Get(wire.GroupHeader), 10, 32)
	if err != nil || r.Method != http.MethodPost {
		return a, job.Invalid(wire.GroupHeader, "", "this is not a request about names")
	}
	k := keeper(uint32(group))
	if k == nil {
		return a, job.Errorf(job.CodeNotFound, "ask another node", "this node has no replica of group %d", group)
	}
	var q Ask
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxMessage)).Decode(&q); err != nil {
		return a, job.Invalid("", "", "this is not a request about names: %v", err)
	}
	if err = k.Do(r.Context(), &q, &a); job.CodeOf(err) == job.CodeNotLeader {
		w.Header().Set(wire.LeaderHeader, k.o.Tracker.Addr())
	}
	return a, err
}

// Client finds the leaders of groups: on this node, or over HTTP.
type Client struct {
	NodeID string
	Local  func(group uint32) *Keeper // nil: this node has no replica of it
	Addr   func(group uint32) string  // where the group's leader is, as this node knows; empty: it does not
	HTTP   func() *http.Client
}

// Call is a Call. It tries again for as long as a request waits for a leader: leaders come and go.
func (c *Client) Call(ctx context.Context, group uint32, q *Ask, a *Answer) error {
	ctx, cancel := context.WithTimeout(ctx, forward.LeaderWait)
	defer cancel()
	told := "" // by a node that does not lead
	for until := forward.Deadline(); ; {
		err := forward.ErrNoLeader()
		if k := c.Local(group); k != nil {
			err = k.Do(ctx, q, a)
		}
		if addr := cmp.Or(told, c.Addr(group)); addr != "" && again(err) {
			told, err = c.post(ctx, addr, group, q, a)
		}
		if !again(err) {
			return err
		}
		pause := 20*time.Millisecond + rand.N(60*time.Millisecond)
		if time.Now().Add(pause).After(until) || !wait.For(ctx, pause) {
			return err
		}
	}
}

// again says that an error may pass. One that no node gave is one of the network.
func again(err error) bool {
	var known *job.Error
	if !errors.As(err, &known) {
		return err != nil
	}
	switch known.Code {
	case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeNotFound:
		return true
	}
	return false
}

// post asks a node. If that does not lead, it may know who does.
func (c *Client) post(ctx context.Context, addr string, group uint32, q *Ask, a *Answer) (leader string, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return "", err
	}
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+Path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	rq.Header.Set("Content-Type", wire.MediaJSON)
	rq.Header.Set(forward.HeaderForwarded, c.NodeID)
	rq.Header.Set(wire.GroupHeader, strconv.FormatUint(uint64(group), 10))
	resp, err := c.HTTP().Do(rq)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		var p wire.Problem
		if json.Unmarshal(data, &p) != nil || p.Code == "" {
			return "", fmt.Errorf("node at %s answered %s", addr, resp.Status)
		}
		return resp.Header.Get(wire.LeaderHeader), &p.Error
	}
	*a = Answer{}
	return "", json.Unmarshal(data, a)
}

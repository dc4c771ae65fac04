// Package quorum finds out which voters are missing when no node leads.
package quorum

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
)

const (
	// believed is how long an answer is believed before the voters are asked again.
	believed = time.Second
	// kept is how long it is shown to callers that do not wait for one.
	kept = 5 * time.Second
)

// Look is what was last found out.
type Look struct {
	asking chan struct{} // holds one token: the voters are asked once for all callers
	mu     sync.Mutex
	text   string
	asked  time.Time
}

// New is a look that was not taken yet.
func New() *Look {
	t := &Look{asking: make(chan struct{}, 1)}
	t.asking <- struct{}{}
	return t
}

// Last is what was found out a moment ago, without asking.
func (t *Look) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.asked) > kept {
		return ""
	}
	return t.text
}

// Missing asks the other voters whether they are there, and says who is not if that is too many for a majority.
func (t *Look) Missing(ctx context.Context, self string, servers []raft.Server,
	probe func(ctx context.Context, addr string) error) string {
	select {
	case <-t.asking:
		defer func() { t.asking <- struct{}{} }()
	case <-ctx.Done(): // the client has left
		return ""
	}
	t.mu.Lock()
	if time.Since(t.asked) < believed {
		defer t.mu.Unlock()
		return t.text
	}
	t.mu.Unlock()

	var mu sync.Mutex
	var wg sync.WaitGroup
	missing := map[string]bool{}
	voters := 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if replica.Node(s.ID) == self {
			continue
		}
		wg.Go(func() {
			if err := probe(context.WithoutCancel(ctx), string(s.Address)); err != nil {
				mu.Lock()
				missing[replica.Node(s.ID)] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	why := ""
	if voters > 0 && voters-len(missing) <= voters/2 {
		var names []string
		for _, s := range servers {
			if missing[replica.Node(s.ID)] {
				names = append(names, fmt.Sprintf("%s (%s)", replica.Node(s.ID), s.Address))
			}
		}
		verb, start := "are", "start one of them"
		if len(missing) == 1 {
			verb, start = "is", "start it"
		}
		why = fmt.Sprintf("%d of %d voters %s unreachable: %s; %s, or run `carillon cluster recover` if they are "+
			"gone for good", len(missing), voters, verb, strings.Join(names, ", "), start)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.asked = why, time.Now()
	return why
}

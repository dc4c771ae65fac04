package membership

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
)

// trouble is why there is no leader, as it was last found out.
type trouble struct {
	asking chan struct{} // holds one token: once for all who want to know
	mu     sync.Mutex
	text   string
	asked  time.Time
}

const (
	// troubleAge is how long the reason is believed before the others are asked again.
	troubleAge = time.Second
	// troubleKept is how long it is shown by who does not wait for an answer.
	troubleKept = 5 * time.Second
)

// Missing is WhyNoLeader without asking: a health check must not wait for nodes that hang. follow asks while no node
// leads.
func (m *Members) Missing() string {
	t := &m.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.asked) > troubleKept {
		return ""
	}
	return t.text
}

// WhyNoLeader asks the other voters whether they are there. It says nothing if a majority is: then an election is under
// way.
func (m *Members) WhyNoLeader(ctx context.Context) string {
	t := &m.trouble
	select {
	case <-t.asking:
		defer func() { t.asking <- struct{}{} }()
	case <-ctx.Done(): // the client has left
		return ""
	}
	t.mu.Lock()
	if time.Since(t.asked) < troubleAge {
		defer t.mu.Unlock()
		return t.text
	}
	t.mu.Unlock()

	var mu sync.Mutex
	var wg sync.WaitGroup
	missing := map[string]bool{}
	voters := 0
	servers := m.Servers()
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if replica.Node(s.ID) == m.id() {
			continue
		}
		wg.Go(func() {
			if _, err := m.Probe(context.WithoutCancel(ctx), string(s.Address)); err != nil {
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
		why = fmt.Sprintf("%d of %d voters %s unreachable: %s; %s, or run `carillon cluster recover` if they are gone for good", len(missing), voters, verb, strings.Join(names, ", "), start)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.asked = why, time.Now()
	return why
}

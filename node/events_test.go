package node

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// listener reads a stream of events and keeps the newest of each kind.
type listener struct {
	mu    sync.Mutex
	count map[string]int
	last  map[string]string
	done  chan struct{}
}

func hear(t *testing.T, n *testNode, query string, headers ...string) *listener {
	t.Helper()
	l := &listener{count: map[string]int{}, last: map[string]string{}, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	rq, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addr()+"/api/v1/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		rq.Header.Set(headers[i], headers[i+1])
	}
	resp, err := clientOf(n.Node).Do(rq)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	go func() {
		defer close(l.done)
		defer resp.Body.Close()
		name := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = rest
			} else if rest, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				l.mu.Lock()
				l.count[name]++
				l.last[name] = rest
				l.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-l.done
	})
	return l
}

func (l *listener) seen(name string) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[name], l.last[name]
}

// A stream of a follower outlives the leader, and says which node leads; and the statistics of all nodes are the same,
// over the change.
func TestEventsAndStatsOverALeaderCrash(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	r := newRecorder(t)
	c.awaitWorkers(3)
	old := c.leader()
	spec := r.spec("tick", "* * * * * *")
	spec["overlap"] = "allow"
	tick := old.create(spec)
	via := c.others(old)
	via[0].eventually("it is there", func() bool {
		return via[0].call("GET", "/api/v1/jobs/tick?stale=true", nil).status == 200
	})
	l := hear(t, via[0].testNode, "namespace=*&topics=stats,cluster,runs,job:"+tick.ID.String())
	via[0].eventually("all kinds come", func() bool {
		for _, name := range []string{"hello", "stats", "cluster", "runs", "job"} {
			if n, _ := l.seen(name); n == 0 {
				return false
			}
		}
		return true
	})
	stats, _ := l.seen("stats")
	old.crash()
	via[0].eventually("it goes on, with another leader", func() bool {
		n, _ := l.seen("stats")
		_, text := l.seen("cluster")
		var e wire.ClusterEvent
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		return n > stats+2 && e.Leader != "" && e.Leader != old.id() && e.Ready && len(e.Members) == 3
	})
	via[0].eventually("a second with a success is told", func() bool {
		_, text := l.seen("stats")
		var e wire.StatsEvent
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		return e.Second.Succeeded > 0 && e.Running != nil && *e.Jobs == 1 && e.LagP50 != nil
	})
	c.settle(via[0], []job.ID{tick.ID})
	buckets := func(m *member) []wire.StatsBucket {
		s := ok[wire.Stats](m.testNode, "GET", "/api/v1/stats?namespace=*", nil)
		if s.CompleteFrom != s.From {
			return nil
		}
		return s.Buckets
	}
	ran := via[0].count("tick", job.RunSucceeded)
	same := func(a, b []wire.StatsBucket) bool {
		sum := int64(0)
		for _, x := range a {
			sum += x.Succeeded
		}
		return sum == int64(ran) && reflect.DeepEqual(a, b)
	}
	via[0].eventually("both agree", func() bool { return same(buckets(via[0]), buckets(via[1])) })
	// A node that starts reads it again.
	old.restart()
	via[0].eventually("all agree", func() bool { return same(buckets(via[0]), buckets(old)) })
}

// A node that stops says so.
func TestEventsEndWithTheNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	l := hear(t, n, "topics=stats")
	n.eventually("it is heard", func() bool { k, _ := l.seen("hello"); return k == 1 })
	n.stop()
	<-l.done
	if _, text := l.seen("bye"); !strings.Contains(text, "stopping") {
		t.Errorf("%q", text)
	}
}

// someEvents are the first of every kind that a node sends by itself.
func someEvents(m *member) []byte {
	m.t.Helper()
	l := hear(m.t, m.testNode, "namespace=*&topics=stats,cluster,runs,dead")
	m.eventually("it tells how things stand", func() bool {
		stats, _ := l.seen("stats")
		cluster, _ := l.seen("cluster")
		return stats > 0 && cluster > 0
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	return []byte(strings.Join(slices.Collect(maps.Values(l.last)), "\n"))
}

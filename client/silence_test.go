package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// street is a network of nodes that are unwell in different ways, over pipes, so that time is the bubble's.
type street struct {
	mu    sync.Mutex
	asked []string // "host method path key"
	keys  []string
}

// The ways to be a node, by the beginning of its name.
const (
	silent  = "silent"  // accepts, as a stopped process does, and never answers
	stalls  = "stalls"  // begins to answer and stops
	resets  = "resets"  // hangs up when it was asked
	refuses = "refuses" // is not there
	blocked = "blocked" // does not even take the connection
	leaders = "leads"   // answers
	orphan  = "orphan"  // answers that there is no leader
)

func (s *street) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	kind := strings.TrimRight(host, "0123456789")
	switch kind {
	case refuses:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case blocked:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	here, there := net.Pipe()
	go s.serve(kind, host, there)
	return here, nil
}

func (s *street) serve(kind, host string, conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, host)
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		s.mu.Unlock()
		switch kind {
		case silent:
			io.Copy(io.Discard, conn) //nolint:errcheck // until the client hangs up
			return
		case stalls:
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"job_id\":")
			io.Copy(io.Discard, conn) //nolint:errcheck // as above
			return
		case resets:
			return
		case orphan:
			answer(conn, "503 Service Unavailable", "application/problem+json", `{"code":"no_leader","detail":"there is no leader"}`)
		case leaders:
			answer(conn, "200 OK", "application/json", `{"job_id":"j_1","jobs":[],"name":"a","canceled":1,"count":1,"run_id":"x"}`)
		}
	}
}

func answer(w io.Writer, status, media, body string) {
	fmt.Fprintf(w, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, media, len(body), body)
}

// talk runs a call against the nodes in virtual time.
func talk(t *testing.T, addrs string, call func(*client.Client) error, opts ...client.Option) (s *street, spent time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = &street{}
		tr := &http.Transport{DialContext: s.dial}
		defer tr.CloseIdleConnections()
		c := client.New(addrs, append([]client.Option{client.WithHTTPClient(&http.Client{Transport: tr}), client.WithBackoff(time.Nanosecond)}, opts...)...)
		began := time.Now()
		err = call(c)
		spent = time.Since(began)
	})
	return s, spent, err
}

func read(c *client.Client) error {
	_, err := c.ListJobs(context.Background(), client.JobQuery{})
	return err
}

func write(c *client.Client) error {
	_, err := c.PauseJob(context.Background(), "a")
	return err
}

// A node that accepts and does not answer, as a stopped process does, ends a call when its time is over and not never.
func TestSilentNode(t *testing.T) {
	for _, tt := range []struct {
		name, addrs string
		call        func(*client.Client) error
		want        job.Code
		message     string
	}{
		{"a read", silent, read, job.CodeUnavailable, "no answer from carillon at http://silent:7400 within 10s"},
		{"a write", silent, write, job.CodeOutcomeUnknown, "outcome unknown: no answer from carillon at http://silent:7400 within 10s"},
		{"a write that was never sent", blocked, write, job.CodeUnavailable, "no answer from carillon at http://blocked:7400 within 10s"},
		{"half an answer to a read", stalls, read, job.CodeOutcomeUnknown, "incomplete answer from carillon at http://stalls:7400: it was silent for 10s"},
		{"half an answer to a write", stalls, write, job.CodeOutcomeUnknown, "incomplete answer from carillon at http://stalls:7400: it was silent for 10s"},
		{"every node", silent + "1," + silent + "2", read, job.CodeUnavailable,
			"no answer from carillon at http://silent1:7400 within 5s; no answer from carillon at http://silent2:7400 within 5s"},
		{"some are not there", refuses + "1," + silent + "2", read, job.CodeUnavailable,
			"cannot reach carillon at http://refuses1:7400: connection refused; no answer from carillon at http://silent2:7400 within 10s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, spent, err := talk(t, tt.addrs, tt.call)
			e, ok := err.(*job.Error)
			if !ok || e.Code != tt.want || !strings.HasPrefix(e.Message, tt.message) {
				t.Fatalf("%v, want %s: %s", err, tt.want, tt.message)
			}
			if spent != 10*time.Second {
				t.Errorf("it took %s", spent)
			}
			if e.Code == job.CodeOutcomeUnknown && s.keys[0] != "" && !strings.Contains(e.Remedy, "Idempotency-Key "+s.keys[0]) {
				t.Errorf("the hint %q does not name the key %q: it cannot be repeated safely", e.Remedy, s.keys[0])
			}
		})
	}
}

// Of several nodes the first that answers is enough, and a write keeps its key on the way.
func TestNodesInTurn(t *testing.T) {
	for _, tt := range []struct {
		name, addrs string
		call        func(*client.Client) error
		asked       []string
		spent       time.Duration
	}{
		{"the first is stopped", "silent1,leads2,silent3", read, []string{"silent1", "leads2"}, 10 * time.Second / 3},
		{"a write goes on with its key", "silent1,stalls2,leads3", write, []string{"silent1", "stalls2", "leads3"}, 20 * time.Second / 3},
		{"one does not take connections", "blocked1,leads2", write, []string{"leads2"}, 5 * time.Second},
		{"one is not there", "refuses1,leads2", write, []string{"leads2"}, 0},
		{"one hangs up", "resets1,leads2", write, []string{"resets1", "leads2"}, 0},
		{"one has no leader", "orphan1,leads2", write, []string{"orphan1", "leads2"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, spent, err := talk(t, tt.addrs, tt.call)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.asked, tt.asked) {
				t.Errorf("asked %v, want %v", s.asked, tt.asked)
			}
			if spent.Round(time.Millisecond) != tt.spent.Round(time.Millisecond) {
				t.Errorf("it took %s, want %s", spent, tt.spent)
			}
			if s.keys[0] != s.keys[len(s.keys)-1] {
				t.Errorf("the key changed on the way: %q", s.keys)
			}
		})
	}
}

// The node that answered is asked first from then on: only one call pays for a node that is stopped.
func TestRemembersWhoAnswered(t *testing.T) {
	s, _, err := talk(t, "silent1,leads2", func(c *client.Client) error {
		return errors.Join(read(c), read(c), read(c))
	})
	if want := []string{"silent1", "leads2", "leads2", "leads2"}; err != nil || !slices.Equal(s.asked, want) {
		t.Errorf("asked %v, want %v: %v", s.asked, want, err)
	}
}

// Of a change to the members a node keeps no outcome: whether it was done must be looked up, and it is not done a second time elsewhere.
func TestBareRequestsAreNotRepeated(t *testing.T) {
	for _, first := range []string{silent, resets, stalls} {
		s, _, err := talk(t, first+"1,leads2", func(c *client.Client) error { return c.TransferLeadership(context.Background(), "") })
		if job.CodeOf(err) != job.CodeOutcomeUnknown && first != stalls || len(s.asked) != 1 {
			t.Errorf("%s: %v, asked %v", first, err, s.asked)
		}
	}
	s, _, err := talk(t, "refuses1,leads2", func(c *client.Client) error { return c.TransferLeadership(context.Background(), "") })
	if len(s.asked) != 1 {
		t.Errorf("%v, asked %v: what was never sent may go on", err, s.asked)
	}
}

// A poll waits at the node, and has its limit on top of that.
func TestWaitsAreNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := client.NewLeader([]string{silent}, client.WithDial((&street{}).dial), client.WithQueue("", "q"))
		defer l.Close()
		began := time.Now()
		_, err := l.Poll(t.Context(), job.Poll{Wait: job.Duration(20 * time.Second)})
		if spent := time.Since(began); job.CodeOf(err) != job.CodeOutcomeUnknown || spent != 25*time.Second {
			t.Errorf("%v after %s", err, spent)
		}
	})
}

// Streams are bounded by their silence, however long they last.
func TestStreamSilence(t *testing.T) {
	for _, tt := range []struct {
		name string
		gaps []time.Duration // before each line; the stream then stops
		fail bool
	}{
		{"slow, and for minutes", slices.Repeat([]time.Duration{25 * time.Second}, 12), false},
		{"it stops", []time.Duration{time.Second, time.Hour}, true},
		{"it never begins", []time.Duration{time.Hour}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					go func() {
						defer there.Close()
						if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
							return
						}
						gone := make(chan struct{})
						go func() {
							io.Copy(io.Discard, there) //nolint:errcheck // until the client hangs up
							close(gone)
						}()
						for i, gap := range tt.gaps {
							select {
							case <-gone:
								return
							case <-time.After(gap):
							}
							if i == 0 {
								fmt.Fprint(there, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
							}
							fmt.Fprintln(there, `{"run_id":"x"}`)
						}
					}()
					return here, nil
				}
				c := client.New("a", client.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: dial}}), client.WithAttempts(1))
				lines := 0
				err := c.ExportHistory(t.Context(), nil, 0, func(job.Run, json.RawMessage) error {
					lines++
					return nil
				})
				if (err != nil) != tt.fail || !tt.fail && lines != len(tt.gaps) {
					t.Errorf("%d lines, then %v", lines, err)
				}
			})
		})
	}
}

func TestAddressLists(t *testing.T) {
	for addrs, want := range map[string]string{
		"a,b":           "http://a:7400",
		" a , b:1":      "http://a:7400",
		"https://a,b:1": "https://a",
		"a,":            "",
		",":             "",
		"a,:::":         "",
	} {
		c := client.New(addrs)
		if got := c.Addr(); got != want {
			t.Errorf("%q: %q, want %q", addrs, got, want)
		}
		if _, err := c.ListJobs(t.Context(), client.JobQuery{}); want == "" && job.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%q: %v", addrs, err)
		}
	}
}

// A name that a path would swallow never gets as far as a path.
func TestNamesThatPathsSwallow(t *testing.T) {
	for _, name := range []string{"", ".", ".."} {
		s, _, err := talk(t, leaders, func(c *client.Client) error {
			ctx := context.Background()
			_, get := c.GetJob(ctx, name)
			_, pause := c.PauseJob(ctx, name)
			_, runs := c.JobRuns(ctx, name, client.RunQuery{})
			_, run := c.GetRun(ctx, name)
			_, queue := c.GetQueue(ctx, name)
			_, calendar := c.GetCalendar(ctx, name)
			remove := c.DeleteJob(ctx, name, 0)
			for i, err := range []error{get, pause, runs, run, queue, calendar, remove} {
				if job.CodeOf(err) != job.CodeInvalid {
					return fmt.Errorf("call %d: %w", i, errors.Join(err, errors.New("not refused")))
				}
			}
			return nil
		})
		if err != nil || len(s.asked) > 0 {
			t.Errorf("%q: %v, asked %v", name, err, s.asked)
		}
	}
}

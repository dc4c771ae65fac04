package proof

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Attack, for a minute each: over many connections a stranger, and then the holder of a token of one namespace, sends
// bodies of 1 MiB to the leader, 3,360 at a time; and a stranger begins 2,000 requests and does not end them. The leader
// goes on to lead, its memory stays within 300 MiB of the usual, and jobs run on. How late they start is reported: what
// the attack costs the machine's two cores is in it.
func TestBodiesOfManyConnections(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: CARILLON_LONG=1, as .ci/deep long does")
	}
	const most = 300 << 20
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	lags.feed(t, admin)
	team, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: "team-a", Role: job.RoleOperator, Namespace: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	lags.next(t, 200) // it has begun
	usual := lags.next(t, 500)
	for _, a := range []struct{ path, token string }{
		{"partial:/api/v1/cluster:join", ""}, {"/api/v1/cluster:join", ""}, {"/api/v1/jobs", team.Text},
	} {
		before := c.status(t)
		lead := c.byID(before.Leader)
		memory := residentOf(t, lead)
		s := sendBodies(t, lead.addr, a.path, a.token)
		peak := int64(0)
		during := []time.Duration{}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			during = lags.next(t, 500) // jobs run
			peak = max(peak, residentOf(t, lead)-memory)
		}
		counts := s.end()
		after := c.status(t)
		if after.Term != before.Term || after.Leader != before.Leader {
			t.Errorf("%s: %s leads in term %d; before it was %s in term %d", a.path, after.Leader, after.Term, before.Leader, before.Term)
		}
		if peak > most {
			t.Errorf("%s: the leader has %d MiB more in memory", a.path, peak>>20)
		}
		t.Logf("%s: lag p50 %s, p99 %s before, %s, %s during; answers %v; leader's memory %+d MiB of %d at most", a.path,
			at(usual, 50), at(usual, 99), at(during, 50), at(during, 99), counts, peak>>20, memory>>20)
	}
}

// attackEnv has this binary attack: ADDRESS PATH TOKEN. After "unread:" there are several paths, whose answers are not
// read. After "partial:" there is one, which requests are begun for.
const attackEnv = "CARILLON_TEST_BODIES"

// bodies are an attack by a process of its own. It takes what processor time is left over: it stands for machines that
// have their own.
type bodies struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
	out bytes.Buffer
}

func sendBodies(t *testing.T, addr, path, token string) *bodies {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &bodies{t: t, cmd: exec.Command(exe)}
	s.cmd.Env = append(os.Environ(), attackEnv+"="+addr+" "+path+" "+token)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err == nil {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, s.cmd.Process.Pid, 19)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// end stops it, and returns how often each status was answered; 0: there was no answer.
func (s *bodies) end() map[int]int {
	s.in.Close()
	counts := map[int]int{}
	if err := errors.Join(s.cmd.Wait(), json.Unmarshal(s.out.Bytes(), &counts)); err != nil {
		s.t.Error(err)
	}
	return counts
}

// attackMain sends bodies until its input ends.
func attackMain(args string) int {
	fields := strings.Split(args, " ")
	addr, path, token := fields[0], fields[1], fields[2]
	if paths, ok := strings.CutPrefix(path, "unread:"); ok {
		return leaveUnread(addr, token, strings.Split(paths, ","))
	}
	if path, ok := strings.CutPrefix(path, "partial:"); ok {
		return beginRequests(addr, path)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	ctx, cancel := context.WithCancel(context.Background())
	body := bytes.Repeat([]byte("x"), 1<<20)
	var port atomic.Int64
	for range 14 {
		web := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				from := net.IPv4(127, 0, 0, byte(20+port.Add(1)%100))
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
			}}
		context.AfterFunc(ctx, web.CloseIdleConnections)
		for range 240 {
			all.Go(func() {
				for ctx.Err() == nil {
					rq, err := http.NewRequestWithContext(ctx, "POST", "https://"+addr+path, bytes.NewReader(body))
					if err != nil {
						panic(err)
					}
					rq.ContentLength = -1 // it does not say how large it is
					if token != "" {
						rq.Header.Set("Authorization", "Bearer "+token)
					}
					status := 0
					res, err := web.RoundTrip(rq)
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
						status = res.StatusCode
					}
					mu.Lock()
					counts[status]++
					mu.Unlock()
					if err != nil || status == http.StatusTooManyRequests {
						select { // its connections are refused, or it asks too often
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				}
			})
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		return 1
	}
	return 0
}

// beginRequests begins requests over 2,000 connections from a hundred addresses, and does not end them, until its input
// ends: a third of them in their headers, the others in their bodies, which half of those go on with byte by byte. It
// says how often each status was answered; 0: the connection was closed.
func beginRequests(addr, path string) int {
	end := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	dialing := make(chan struct{}, 16) // handshakes at a time: they are not what this is about
	for i := range 2000 {
		begun, more := head+"X-", ""
		if i%3 > 0 {
			begun = head + "Content-Length: 16000\r\n\r\n{"
		}
		if i%3 > 1 {
			more = " "
		}
		d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(20+i%100))},
			Timeout: 10 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
		all.Go(func() {
			for {
				status := 0
				dialing <- struct{}{}
				conn, err := d.Dial("tcp", addr)
				<-dialing
				if err == nil {
					closed := make(chan struct{})
					go func() {
						defer close(closed)
						if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
							status = res.StatusCode
							_, _ = io.Copy(io.Discard, conn)
						}
					}()
					_, err = io.WriteString(conn, begun)
					for err == nil && more != "" && !wait(closed, time.Second) && !wait(end, 0) {
						_, err = io.WriteString(conn, more)
					}
					select {
					case <-closed:
					case <-end:
					}
					conn.Close()
					<-closed
				}
				mu.Lock()
				counts[status]++
				mu.Unlock()
				if wait(end, 100*time.Millisecond) {
					return
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(end)
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		return 1
	}
	return 0
}

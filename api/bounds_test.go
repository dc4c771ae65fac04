package api

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What is under way of one token is bounded by what it is, and what leaves makes room.
func TestOpenOfAToken(t *testing.T) {
	var told []Refusal
	b := newBounds(Limits{Requests: 1 << 20, Refused: func(r Refusal, _ string) { told = append(told, r) }})
	id := &Identity{Token: "t", Name: "tok"}
	for _, c := range []struct {
		kind openKind
		most int
		why  Refusal
	}{{plainRequest, maxTokenOpen, RefusedOpen}, {openPoll, maxTokenPolls, RefusedPolls},
		{openStream, maxTokenStreams, RefusedStreams}} {
		var leave func()
		for i := range c.most {
			var err error
			if leave, err = b.enter(id, c.kind); err != nil {
				t.Fatalf("%s: number %d: %v", c.why, i, err)
			}
		}
		told = nil
		_, err := b.enter(id, c.kind)
		if job.CodeOf(err) != job.CodeTooManyRequests || len(told) != 1 || told[0] != c.why {
			t.Errorf("%s: %v, told %v", c.why, err, told)
		}
		if _, err := b.enter(&Identity{Token: "u", Name: "other"}, c.kind); err != nil {
			t.Errorf("%s of another token: %v", c.why, err)
		}
		leave()
		if _, err := b.enter(id, c.kind); err != nil {
			t.Errorf("%s after one left: %v", c.why, err)
		}
	}
	for range 10 * maxTokenOpen {
		if _, err := b.enter(id, workerCall); err != nil {
			t.Fatalf("what a worker says: %v", err)
		}
	}
}

// A token whose requests have all ended is forgotten.
func TestOpenIsForgotten(t *testing.T) {
	b := newBounds(Limits{})
	leave, err := b.enter(&Identity{Token: "t"}, openStream)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if len(b.open) != 0 {
		t.Errorf("%d tokens are remembered", len(b.open))
	}
}

// Every call of the worker protocol is free for a worker, but for polls, which wait; and for no other role.
func TestKindsOfRoutes(t *testing.T) {
	worker, viewer := &Identity{Role: job.RoleWorker}, &Identity{Role: job.RoleViewer}
	for _, rt := range routes() {
		got := kindOf(worker, rt.role, rt.body)
		want := plainRequest
		switch rt.path {
		case prefix + "/workers:poll":
			want = openPoll
		case prefix + "/workers:heartbeat", prefix + "/workers:report", prefix + "/workers:output":
			want = workerCall
		case prefix + "/jobs:bulk", prefix + "/jobs:apply", prefix + "/runs:export", prefix + "/audit:export", prefix + "/backup", "/metrics", "/metrics/jobs",
			prefix + "/jobs:act", prefix + "/events":
			want = openStream
		}
		if got != want {
			t.Errorf("%s counts as %d, want %d", rt.path, got, want)
		}
		if got := kindOf(viewer, rt.role, rt.body); got != plainRequest && got != openStream {
			t.Errorf("%s of a viewer counts as %d", rt.path, got)
		}
	}
}

// Only where a valid token came from is told: neither of a bad one, nor of one that is right but no longer valid.
func TestWhereTokensCameFrom(t *testing.T) {
	var told []netip.Addr
	b := newBounds(Limits{TokenFrom: func(a netip.Addr) { told = append(told, a) }})
	refused := job.Errorf(job.CodeUnauthenticated, "", "no")
	for i, c := range []struct {
		id  Identity
		err error
	}{{Identity{Token: "t"}, nil}, {Identity{}, refused}, {Identity{Token: "revoked"}, refused}} {
		b.guess(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), func(bool) (Identity, error) { return c.id, c.err })
	}
	if len(told) != 1 || told[0] != netip.AddrFrom4([4]byte{10, 0, 0, 0}) {
		t.Errorf("told of %v", told)
	}
}

func TestSources(t *testing.T) {
	for remote, want := range map[string]string{
		"10.1.2.3:99": "10.1.2.3", "[::ffff:10.1.2.3]:99": "10.1.2.3", "[fd00::1:2:3:4]:1": "fd00::", "@": "",
	} {
		got := sourceOf(&http.Request{RemoteAddr: remote}, "")
		if want == "" && got.IsValid() || want != "" && got != netip.MustParseAddr(want) {
			t.Errorf("%s counts as %s, want %s", remote, got, want)
		}
	}
	if sourceOf(&http.Request{RemoteAddr: "10.1.2.3:99"}, "n2").IsValid() {
		t.Error("what a node passes on is counted as the node's")
	}
}

// A token may be revoked after its request was let through and before its body is read: the deadline of the body takes
// the place of the one that ends the request, so that no goroutine waits for a body that may never come.
func TestNoBodyIsReadOfARevokedToken(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(job.Errorf(job.CodeUnauthenticated, "", "revoked"))
	body := &readNote{}
	w := httptest.NewRecorder()
	New(nil, Options{}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", prefix+"/jobs", body))
	if w.Code != http.StatusUnauthorized || body.read {
		t.Errorf("%d %s; read: %v", w.Code, w.Body, body.read)
	}
}

// readNote notes that it was read.
type readNote struct{ read bool }

func (b *readNote) Read([]byte) (int, error) { b.read = true; return 0, io.EOF }

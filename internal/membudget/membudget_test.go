package membudget

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func holds(t *testing.T, b *Budget, pool string, held int64, waiting int) {
	t.Helper()
	if u := b.Uses()[pool]; u.Held != held || u.Waiting != waiting {
		t.Errorf("%s hold %d bytes and %d wait, want %d and %d", pool, u.Held, u.Waiting, held, waiting)
	}
}

// asks is a request of somebody, whose body is read until its context ends.
type asks struct {
	ctx  context.Context
	end  func()
	r    *http.Request
	said chan error
}

// stalled is a body that does not come until the request is given up.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }

// read begins to read a body. A negative size is not said. Its bytes do not come if it is stalled.
func read(b *Budget, who Who, size, limit int64, stalls bool) *asks {
	ctx, cancel := context.WithCancel(context.Background())
	ctx, release := b.Begin(ctx, who)
	a := &asks{ctx: ctx, end: func() { cancel(); release() }, said: make(chan error, 1)}
	var body io.Reader = strings.NewReader(strings.Repeat("x", int(max(size, 0))))
	if stalls {
		body = stalled{ctx}
	}
	a.r = httptest.NewRequestWithContext(ctx, "POST", "/", body)
	a.r.ContentLength = size
	go func() {
		_, err := ReadBody(a.r, limit)
		a.said <- err
	}()
	return a
}

const mib = 1 << 20

// Attack: strangers, and one token, send as many bodies as they can and never finish them. What they hold is bounded,
// the rest waits and is refused; a token, another token and a member do not wait behind them.
func TestNoneStarvesBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Callers: 16 * mib, Members: 4 * mib, Strangers: mib})
		var all []*asks
		for range 500 {
			all = append(all, read(b, Who{Kind: Stranger}, 16<<10, 16<<10, true),
				read(b, Who{Kind: Caller, Token: "greedy"}, -1, mib, true))
		}
		synctest.Wait()
		holds(t, b, "strangers", mib, 500-64)
		holds(t, b, "callers", 16*mib/tokenShare, 500-4)
		begin := time.Now()
		for what, who := range map[string]Who{"another token": {Kind: Caller, Token: "honest"}, "a member": {Kind: Member}} {
			a := read(b, who, mib, mib, false)
			if err := <-a.said; err != nil || time.Since(begin) != 0 {
				t.Errorf("%s: %v after %s", what, err, time.Since(begin))
			}
			defer a.end()
		}
		// With bodies of three more tokens all shares are taken; then members still have theirs.
		for _, name := range []string{"honest", "c", "d"} {
			for range 4 {
				all = append(all, read(b, Who{Kind: Caller, Token: name}, mib, mib, true))
			}
		}
		synctest.Wait()
		if u := b.Uses()["callers"]; u.Held != 16*mib || u.Most != 16*mib {
			t.Errorf("callers hold %d, at most %d", u.Held, u.Most)
		}
		a := read(b, Who{Kind: Member}, mib, mib, false)
		if err := <-a.said; err != nil || time.Since(begin) != 0 {
			t.Errorf("a member: %v after %s", err, time.Since(begin))
		}
		a.end()
		// Those that wait are told after a time, and nothing of them is read.
		time.Sleep(5 * time.Second)
		synctest.Wait()
		refused := 0
		for _, a := range all {
			select {
			case err := <-a.said:
				if job.CodeOf(err) != job.CodeUnavailable {
					t.Fatal(err)
				}
				refused++
			default:
			}
		}
		if want := 500 - 64 + 500 - 4 + 1; refused != want {
			t.Errorf("%d were refused, want %d", refused, want)
		}
		for _, a := range all {
			a.end()
		}
	})
}

// Requests are let in by turn; one whose token has its share waits for its own, and one that gives up is in no way.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Callers: 100, Wait: time.Hour})
		first := read(b, Who{}, 90, 100, false)
		synctest.Wait()
		large := read(b, Who{}, 50, 100, false)
		synctest.Wait()
		small := read(b, Who{}, 5, 100, false) // fits, but it is not its turn
		own := read(b, Who{Token: "a"}, 5, 100, false)
		synctest.Wait()
		holds(t, b, "callers", 90, 3)
		large.end() // it gives up
		synctest.Wait()
		holds(t, b, "callers", 100, 0)
		first.end()
		more := read(b, Who{Token: "a"}, 24, 100, false) // with the five it has more than a quarter
		synctest.Wait()
		other := read(b, Who{}, 90, 100, false)
		synctest.Wait()
		holds(t, b, "callers", 100, 1)
		own.end()
		holds(t, b, "callers", 95, 1)
		other.end()
		synctest.Wait()
		holds(t, b, "callers", 5+24, 0)
		small.end()
		more.end()
		holds(t, b, "callers", 0, 0)
		if len(b.callers.shares) != 0 {
			t.Errorf("shares are left: %v", b.callers.shares)
		}
	})
}

// One that is larger than its share is let in alone, and not never.
func TestLargerThanTheShare(t *testing.T) {
	b := New(Limits{Callers: 100})
	a := read(b, Who{Token: "a"}, 60, 100, false)
	if err := <-a.said; err != nil {
		t.Error(err)
	}
	holds(t, b, "callers", 25, 0)
	a.end()
	holds(t, b, "callers", 0, 0)
}

// A body is counted once, however often it is handed on, and a request that another one is answered with does not wait.
func TestCountedOnce(t *testing.T) {
	b := New(Limits{Callers: 10, Wait: time.Nanosecond})
	a := read(b, Who{}, 10, 10, false)
	if err := <-a.said; err != nil {
		t.Fatal(err)
	}
	defer a.end()
	if data, err := ReadBody(a.r, 10); err != nil || len(data) != 10 {
		t.Errorf("again: %d bytes, %v", len(data), err)
	}
	again := a.r.Clone(a.ctx)
	again.Body = Kept([]byte("xxxxxxxxxx"))
	if _, err := ReadBody(again, 10); err != nil {
		t.Errorf("kept: %v", err)
	}
	if _, err := ReadBody(again, 9); !errors.Is(err, ErrTooLarge) {
		t.Errorf("kept, and too large: %v", err)
	}
	holds(t, b, "callers", 10, 0)
	ctx, endNested := Nested(a.ctx)
	inner := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("xxxxx"))
	if _, err := ReadBody(inner, 10); err != nil {
		t.Errorf("nested: %v", err)
	}
	holds(t, b, "callers", 15, 0)
	other := read(b, Who{}, 1, 10, false)
	if err := <-other.said; job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("another: %v", err)
	}
	if _, err := ReadBody(other.r, 10); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("who was refused does not wait again: %v", err)
	}
	endNested()
	holds(t, b, "callers", 10, 0)
	part, endPart := Part(a.ctx)
	if _, err := ReadBody(httptest.NewRequestWithContext(part, "POST", "/", strings.NewReader("x")), 10); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("a part that has to wait: %v", err)
	}
	endPart()
}

// What could not be read is found again by who is asked next.
func TestBodiesThatAreNotRead(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		body io.Reader
		size int64
		want error
		left string
	}{
		"says that it is too large": {strings.NewReader("xxxx"), 4, ErrTooLarge, "xxxx"},
		"is too large":              {strings.NewReader("xxxx"), -1, ErrTooLarge, "xxxx"},
		"breaks off":                {io.MultiReader(strings.NewReader("x"), failing{broken}), -1, broken, ""},
	} {
		b := New(Limits{})
		ctx, end := b.Begin(t.Context(), Who{})
		r := httptest.NewRequestWithContext(ctx, "POST", "/", c.body)
		r.ContentLength = c.size
		for range 2 {
			if _, err := ReadBody(r, 3); !errors.Is(err, c.want) {
				t.Errorf("a body that %s: %v", name, err)
			}
		}
		var left bytes.Buffer
		if _, err := left.ReadFrom(r.Body); left.String() != c.left || c.left == "" && err == nil {
			t.Errorf("of a body that %s there is left %q, %v", name, &left, err)
		}
		if used := b.Uses()["callers"].Held; used > 4 {
			t.Errorf("a body that %s holds %d", name, used)
		}
		end()
		holds(t, b, "callers", 0, 0)
	}
}

// A chunk of a bulk create waits for as long as it may, is given back before its stream ends, and a token has a share.
func TestChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Bulk: 100})
		ctx, end := b.Begin(t.Context(), Who{Token: "a"})
		first, err := Chunk(ctx, 20)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error)
		go func() {
			_, err := Chunk(ctx, 20)
			second <- err
		}()
		time.Sleep(time.Minute)
		holds(t, b, "bulk", 20, 1)
		other, endOther := b.Begin(t.Context(), Who{Token: "b"})
		if _, err := Chunk(other, 20); err != nil {
			t.Errorf("another token: %v", err)
		}
		first.Release()
		first.Release()
		if err := <-second; err != nil {
			t.Error(err)
		}
		revoked, revoke := context.WithCancelCause(ctx)
		why := job.Errorf(job.CodeUnauthenticated, "", "revoked")
		revoke(why)
		if _, err := Chunk(revoked, 20); !errors.Is(err, why) {
			t.Errorf("after its token was revoked: %v", err)
		}
		end()
		endOther()
		holds(t, b, "bulk", 0, 0)
	})
}

// Room for answers is had at once or not at all. Small messages of members never wait.
func TestNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Forwarded: 100, Members: 100, Wait: time.Hour})
		ctx, end := b.Begin(t.Context(), Who{Kind: Stranger})
		h := Forwarded(ctx)
		if !h.Grow(20) || h.Grow(20) {
			t.Error("strangers have not a quarter")
		}
		holds(t, b, "forwarded", 20, 0)
		member, endMember := b.Begin(t.Context(), Who{Kind: Member})
		if !Forwarded(member).Grow(80) || Forwarded(member).Grow(1) {
			t.Error("a member has not the rest")
		}
		end()
		endMember()
		holds(t, b, "forwarded", 0, 0)
		full := read(b, Who{Kind: Member}, 100<<10, 100<<10, true)
		defer full.end()
		synctest.Wait() // another goroutine takes it
		probe := read(b, Who{Kind: Member}, smallOfMember, 64<<10, false)
		if err := <-probe.said; err != nil {
			t.Error(err)
		}
		probe.end()
		if !Forwarded(t.Context()).Grow(1 << 40) {
			t.Error("without an account there is no bound")
		}
		ctx, end = Nested(t.Context())
		if end(); of(ctx) != nil {
			t.Error("a part of a request without an account has one")
		}
	})
}

// Attack: one token asks for answers and takes none. What they have in memory is bounded, the rest waits and is refused
// before anything is done; another token does not wait behind it. A node and a part of a request never wait.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Answers: 8 * RoomOfRead})
		begin := func(who Who) (context.Context, func()) { return b.Begin(t.Context(), who) }
		greedy := Who{Token: "greedy"}
		first, endFirst := begin(greedy)
		one, err := Answer(first, RoomOfRead)
		if err != nil {
			t.Fatal(err)
		}
		if !one.Fit(1000) || !one.Fit(RoomOfRead) {
			t.Error("a small answer has no room")
		}
		second, endSecond := begin(greedy)
		two, err := Answer(second, RoomOfRead)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, b, "answers", 2*RoomOfRead, 0)
		if two.Fit(RoomOfRead + 1) {
			t.Error("an answer takes more than the share of its token")
		}
		third, endThird := begin(greedy)
		defer endThird()
		began := time.Now()
		if _, err := Answer(third, RoomOfRead); job.CodeOf(err) != job.CodeUnavailable || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		part, endPart := Nested(third)
		if nested, err := Answer(part, RoomOfRead); err != nil || !nested.Fit(mib) {
			t.Errorf("a part of a request waits: %v", err)
		}
		endPart()
		other, endOther := begin(Who{Token: "other"})
		defer endOther()
		his, err := Answer(other, RoomOfRead)
		if err != nil || !his.Fit(2*RoomOfRead) {
			t.Errorf("another token: %v", err)
		}
		for _, who := range []Who{{Kind: Member}, {Kind: Stranger}} {
			ctx, end := begin(who)
			if held, err := Answer(ctx, RoomOfRead); held != nil || err != nil {
				t.Errorf("%+v: %v, %v", who, held, err)
			}
			end()
		}
		if !his.Fit(1) {
			t.Error("less has no room")
		}
		endSecond()
		holds(t, b, "answers", RoomOfRead+1, 0)
		if !one.Fit(7*RoomOfRead - 1) { // it is the only one of its token
			t.Error("a large answer has no room when its token has no other")
		}
		if one.Fit(8 * RoomOfRead) {
			t.Error("there is more in memory than there is room")
		}
		endFirst()
		his.Release()
		holds(t, b, "answers", 0, 0)
		if held, err := Answer(third, RoomOfRead); err != nil || !held.Fit(100*RoomOfRead) {
			t.Errorf("the only answer has no room: %v", err)
		}
	})
}

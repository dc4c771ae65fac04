package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// A request about all dead letters of a job that is repeated with its key is answered by the first outcome: what died
// since stays where it is.
func TestRepeatedRedriveLeavesLaterLetters(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	n.create(tg.spec("d", "@manual", "overlap", "allow", "retry", map[string]any{"max_retries": 0}))
	list := func() []job.DeadLetter { return ok[wire.DeadPage](n, "GET", "/api/v1/dead?job=d", nil).Dead }
	for i, method := range []string{"POST /api/v1/dead:redrive?job=d", "DELETE /api/v1/dead?job=d"} {
		verb, path, _ := strings.Cut(method, " ")
		ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
		n.eventually("it is dead", func() bool { return len(list()) == 1 })
		for try := range 2 {
			a := n.call(verb, path, nil, "Idempotency-Key", fmt.Sprint("all", i))
			if a.status != 200 || !strings.Contains(string(a.body), `"count":1`) {
				t.Errorf("%s: %d %s", method, a.status, a.body)
			}
			if i == 0 { // sent back, it dies again
				n.eventually("it is dead again", func() bool { return len(list()) == 1 })
			} else if try == 0 {
				ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
				n.eventually("another one is dead", func() bool { return len(list()) == 1 })
			}
		}
		if i == 0 {
			if got := n.count("d", job.RunDead); got != 2 {
				t.Errorf("%d attempts died, want 2: the repetition sent it back once more", got)
			}
			ok[wire.DeadResult](n, "DELETE", "/api/v1/dead?all=true", nil)
		}
	}
	if len(list()) != 1 {
		t.Errorf("%d letters are left, want the one that died last", len(list()))
	}
}

// A redrive says of the letters that it leaves why it does: a deleted job has none that could run again. One that is
// named twice is done once.
func TestRedriveSaysWhatItLeaves(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	for _, name := range []string{"kept", "deleted"} {
		n.create(tg.spec(name, "@manual", "retry", map[string]any{"max_retries": 0}))
		ok[job.Run](n, "POST", "/api/v1/jobs/"+name+":run", nil)
	}
	list := func() []job.DeadLetter { return ok[wire.DeadPage](n, "GET", "/api/v1/dead", nil).Dead }
	n.eventually("they are dead", func() bool { return len(list()) == 2 })
	ok[any](n, "DELETE", "/api/v1/jobs/deleted", nil)
	tg.set(200)
	letters := list()
	if len(letters) != 2 {
		t.Fatalf("%d letters after the delete", len(letters))
	}
	var ids []uint64
	for _, l := range letters {
		ids = append(ids, l.Seq, l.Seq)
	}
	got := ok[wire.DeadResult](n, "POST", "/api/v1/dead:redrive", map[string]any{"ids": ids})
	if got.Count != 1 || got.Gone != 1 || got.Open != 0 || len(got.Unknown) != 0 {
		t.Errorf("%+v", got)
	}
	got = ok[wire.DeadResult](n, "POST", "/api/v1/dead:redrive", map[string]any{"all": true})
	if got.Count != 0 || got.Gone != 1 || got.Open != 0 {
		t.Errorf("%+v", got)
	}
	got = ok[wire.DeadResult](n, "DELETE", "/api/v1/dead?all=true", nil)
	if got.Count != 1 || got.Gone != 0 {
		t.Errorf("purge: %+v", got)
	}
}

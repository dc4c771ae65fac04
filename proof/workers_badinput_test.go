package proof

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// desk is a node as people see it who write workers with curl, and who run the CLI beside.
type desk struct {
	t *testing.T
	n *harness.Node
}

func newDesk(t *testing.T, flags ...string) *desk {
	t.Helper()
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), flags...)
	n.Start()
	return &desk{t, n}
}

// call sends a worker's message about a queue and reads the answer into v.
func (d *desk) call(queue, verb, body string, v any) int {
	d.t.Helper()
	res, err := http.Post("http://"+d.n.Addr+"/api/v1/workers:"+verb+"?queue="+queue, "application/json",
		strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
	return res.StatusCode
}

// poll takes one run.
func (d *desk) poll(queue, body string) job.Assignment {
	d.t.Helper()
	var a job.PollReply
	if status := d.call(queue, "poll", body, &a); status != http.StatusOK || len(a.Runs) != 1 {
		d.t.Fatalf("%d %+v", status, a)
	}
	return a.Runs[0]
}

// answers is what the items of a report or heartbeat are answered with.
func (d *desk) answers(queue, verb, session string, items ...string) []job.Answer {
	d.t.Helper()
	var a struct{ Runs, Results []job.Answer }
	if status := d.call(queue, verb, batchOf(verb, session, items...), &a); status != http.StatusOK ||
		len(a.Runs)+len(a.Results) != len(items) {
		d.t.Fatalf("%d %+v", status, a)
	}
	return append(a.Runs, a.Results...)
}

// answer is that of one item.
func (d *desk) answer(queue, verb, item string) job.Answer {
	d.t.Helper()
	return d.answers(queue, verb, "", item)[0]
}

// session opens one for another worker.
func (d *desk) session(worker string) string {
	d.t.Helper()
	var a job.PollReply
	if status := d.call("mail", "poll", fmt.Sprintf(`{"worker":%q,"free":0}`, worker), &a); status != http.StatusOK {
		d.t.Fatalf("%d %+v", status, a)
	}
	return a.Session
}

// cli runs a command against the node.
func (d *desk) cli(args ...string) (said string, code int) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.n.Binary, append(args, "--addr", d.n.Addr)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// state is everything that the node knows of jobs, runs and queues.
func (d *desk) state() string {
	d.t.Helper()
	s, err := harness.StateOf(d.t.Context(), d.n)
	if err != nil {
		d.t.Fatal(err)
	}
	queues, err := d.n.Client.Queues(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%+v", s.Text, queues)
}

func queueSpec(name, queue string) job.Spec {
	return job.Spec{Name: name, Type: job.TypeQueue, Overlap: job.OverlapAllow,
		Payload: fmt.Appendf(nil, `{"queue":%q}`, queue)}
}

// ref is an item for a claim, with other fields; done one that it succeeded.
func ref(a job.Assignment, more string) string { return fmt.Sprintf(`{"claim":%q%s}`, a.Claim, more) }

func done(a job.Assignment) string { return ref(a, `,"outcome":"succeeded"`) }

func batchOf(verb, session string, items ...string) string {
	list := map[string]string{"heartbeat": "runs", "report": "results"}[verb]
	return fmt.Sprintf(`{"session":%q,%q:[%s]}`, session, list, strings.Join(items, ","))
}

// TestWorkersBadInput sends what people get wrong who write a worker or look after queues: each gets an answer that
// says what is wrong, and nothing changes.
func TestWorkersBadInput(t *testing.T) {
	beside(t)
	d := newDesk(t, "--executors", "none")
	first := makeRun(t, d.n, queueSpec("m", "mail"))
	a := d.poll("mail", `{"worker":"w","wait":"10s"}`)
	if a.Run.String() != first.RunID {
		t.Fatalf("%+v", a)
	}
	unchanged := func(t *testing.T, do func()) {
		t.Helper()
		before := d.state()
		do()
		if after := d.state(); after != before {
			t.Errorf("something changed:\n%s\n%s", before, after)
		}
	}

	t.Run("unknown queue", func(t *testing.T) {
		unchanged(t, func() {
			var p client.Problem
			if status := d.call("nope", "poll", `{"worker":"w"}`, &p); status != 404 || p.Code != job.CodeUnknownQueue ||
				!strings.Contains(p.Message, "known are mail") || p.Remedy == "" {
				t.Errorf("%d %+v", status, p)
			}
			for _, verb := range []string{"get", "pause", "resume", "delete"} {
				said, code := d.cli("queues", verb, "nope")
				if code != 3 || !strings.Contains(said, `"nope"`) || !strings.Contains(said, "hint: ") {
					t.Errorf("queues %s: exit code %d: %s", verb, code, said)
				}
			}
			if said, code := d.cli("queues", "set", "a b", "--concurrency", "1"); code != 2 || !strings.Contains(said, `"a b"`) {
				t.Errorf("exit code %d: %s", code, said)
			}
			if said, code := d.cli("queues", "set", "mail", "--concurrency", "-1"); code != 2 ||
				!strings.Contains(said, "concurrency") {
				t.Errorf("exit code %d: %s", code, said)
			}
		})
	})
	t.Run("not your run", func(t *testing.T) {
		unchanged(t, func() {
			x, guess := d.session("x"), a
			guess.Claim = job.Ref{Run: a.Run, Fence: a.Fence + 5}.Text()
			for verb, more := range map[string]string{"heartbeat": "", "report": `,"outcome":"succeeded"`} {
				byFence := fmt.Sprintf(`{"fence":%d%s}`, a.Fence, more)
				for _, got := range d.answers("mail", verb, x, ref(a, more), byFence) {
					if got.Status != job.StatusGone || !strings.Contains(got.Why, "holds this run") {
						t.Errorf("%s: %+v", verb, got)
					}
				}
				if got := d.answer("mail", verb, ref(guess, more)); got.Status != job.StatusGone ||
					!strings.Contains(got.Why, "never given out") {
					t.Errorf("%s: %+v", verb, got)
				}
			}
		})
	})
	t.Run("malformed batch", func(t *testing.T) {
		unchanged(t, func() {
			results := func(second string) string { return batchOf("report", "", done(a), second) }
			for _, c := range []struct {
				verb, body string
				code       job.Code
				field      string
			}{
				// The first item would be good: it is not done either.
				{"report", results(`{"claim":7}`), job.CodeInvalid, "results"},
				{"report", results(`{"fence":"1"}`), job.CodeInvalid, "results"},
				{"report", results(`{"claim":"c_x","outcome":1}`), job.CodeInvalid, "results"},
				{"report", results(ref(a, `,"outcome":"failed","retry_after":"soon"`)), job.CodeInvalid, "results"},
				{"report", `{"result":[` + done(a) + `]}`, job.CodeInvalid, "results"},
				{"report", `{"results":[` + done(a), job.CodeMalformed, ""},
				{"heartbeat", batchOf("heartbeat", "", ref(a, ""), `7`), job.CodeInvalid, "runs"},
				{"heartbeat", `{"runs":[]}`, job.CodeInvalid, "runs"},
				{"poll", `{"worker":"v","free":-1}`, job.CodeInvalid, "free"},
				{"poll", `{"session":"nonsense"}`, job.CodeInvalid, "session"},
			} {
				var p client.Problem
				if status := d.call("mail", c.verb, c.body, &p); status != 400 || p.Code != c.code || p.Field != c.field ||
					p.Message == "" {
					t.Errorf("%s %s: %d %+v", c.verb, c.body, status, p)
				}
			}
			for _, got := range d.answers("mail", "report", "", `{"claim":"nope","outcome":"succeeded"}`,
				`{"outcome":"succeeded"}`, ref(a, `,"outcome":"done"`), ref(a, "")) {
				if got.Status != job.StatusInvalid || got.Why == "" {
					t.Errorf("%+v", got)
				}
			}
			if got := d.answers("mail", "heartbeat", "", `{"claim":"nope"}`, ref(a, `,"error":"x"`)); got[0].Status !=
				job.StatusInvalid || got[1].Status != job.StatusOK {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("old fence", func(t *testing.T) {
		back := d.answer("mail", "report", ref(a, `,"outcome":"returned"`))
		b := d.poll("mail", `{"worker":"w2","wait":"10s"}`)
		if back.Status != job.StatusOK || b.Run != a.Run || b.Fence <= a.Fence {
			t.Fatalf("%+v %+v", back, b)
		}
		unchanged(t, func() {
			for item, verb := range map[string]string{done(a): "report", ref(a, ""): "heartbeat",
				ref(a, `,"outcome":"failed","error":"x"`): "report"} {
				if got := d.answer("mail", verb, item); got.Status != job.StatusGone || got.Why == "" {
					t.Errorf("%s: %+v", verb, got)
				} else {
					t.Logf("%s with an old fence: %s", verb, got.Why)
				}
			}
		})
		// What is wrong with an item is its own matter: the others are done, and the same one twice is done once.
		got := d.answers("mail", "report", "", `{"claim":"nope","outcome":"succeeded"}`, done(b), done(b))
		if got[0].Status != job.StatusInvalid || got[1].Status != job.StatusOK || got[1].Repeated ||
			got[2].Status != job.StatusOK {
			t.Errorf("%+v", got)
		}
		if r := awaitRun(t, d.n, first.RunID, job.RunSucceeded); r.Worker != "w2" || r.Fence != b.Fence ||
			len(r.Attempts) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestStrangersKeepNoRunAlive: what another worker says about a run does not extend its lease.
func TestStrangersKeepNoRunAlive(t *testing.T) {
	beside(t)
	d := newDesk(t, "--executors", "none", "--lease", "1s")
	spec := queueSpec("m", "mail")
	spec.Delivery = job.DeliverAtMostOnce
	makeRun(t, d.n, spec)
	a := d.poll("mail", `{"worker":"w","wait":"10s"}`)
	x := d.session("x")
	harness.Eventually(t, time.Minute, "it is lost", func() bool {
		if got := d.answers("mail", "heartbeat", x, ref(a, ""))[0]; got.Status != job.StatusGone {
			t.Fatalf("%+v", got)
		}
		r, err := d.n.Client.GetRun(t.Context(), a.Run.String())
		return err == nil && r.Status == job.RunLost
	})
	// The state has it before the leader's own table does: for a moment the lease has ended, and it is being taken back.
	harness.Eventually(t, time.Minute, "it says so", func() bool {
		got := d.answer("mail", "report", done(a))
		if got.Status != job.StatusGone {
			t.Fatalf("%+v", got)
		}
		return strings.Contains(got.Why, "lost")
	})
}

// TestJobsSayWhyTheyWait, in the API and on the terminal, for every reason that an operator can do something about; and
// when that is done they run, and say nothing any more.
func TestJobsSayWhyTheyWait(t *testing.T) {
	beside(t)
	d := newDesk(t, "--executors", "http")
	target := harness.NewTarget(t)
	runs := map[string]job.Run{}
	add := func(spec job.Spec) { runs[spec.Name] = makeRun(t, d.n, spec) }
	says := func(name, want string) {
		t.Helper()
		var j job.Job
		if !harness.Within(20*time.Second, func() bool {
			var err error
			j, err = d.n.Client.GetJob(t.Context(), name)
			return err == nil && j.WaitReason == want
		}) {
			t.Errorf("%s waits because %q, want %q", name, j.WaitReason, want)
		}
		said, code := d.cli("jobs", "get", name)
		line := ""
		for l := range strings.Lines(said) {
			if rest, ok := strings.CutPrefix(l, "waiting"); ok {
				line = strings.TrimSpace(rest)
			}
		}
		if code != 0 || line != want {
			t.Errorf("carillon jobs get %s: exit code %d, waiting %q, want %q", name, code, line, want)
		}
	}
	add(shellJob("script", "true"))
	add(job.Spec{Name: "eu", Type: job.TypeHTTP, Workers: map[string]string{"region": "eu"},
		Payload: fmt.Appendf(nil, `{"url":"%s/eu"}`, target.URL)})
	add(queueSpec("letter", "mail"))
	add(queueSpec("paused", "sms"))
	if said, code := d.cli("queues", "pause", "sms"); code != 0 || !strings.Contains(said, "paused queue sms") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if said, code := d.cli("queues", "set", "fax", "--concurrency", "1"); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
	makeRun(t, d.n, queueSpec("first", "fax"))
	fax := d.poll("fax", `{"worker":"w","wait":"10s"}`)
	add(queueSpec("full", "fax"))
	says("script", "no worker has executor shell enabled")
	says("eu", "no worker of executor http has tags region=eu")
	says("letter", "no worker takes queue mail")
	says("paused", "queue sms is paused")
	says("full", "queue fax is at its limit (1 of 1 running)")
	says("first", "")
	if said, _ := d.cli("queues"); !strings.Contains(said, "queue fax is at its limit (1 of 1 running)") ||
		!strings.Contains(said, "queue sms is paused") || !strings.Contains(said, "no worker takes queue mail") {
		t.Errorf("carillon queues does not say why they wait:\n%s", said)
	}

	worker(t, d.n, "eu", "--executors", "http,shell,queue", "--tags", "region=eu", "--command", "true",
		"--egress-allow", "loopback")
	if got := d.answer("fax", "report", done(fax)); got.Status != job.StatusOK {
		t.Errorf("%+v", got)
	}
	if said, code := d.cli("queues", "resume", "sms"); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
	for name, r := range runs {
		if got := awaitRun(t, d.n, r.RunID, job.RunSucceeded); got.Worker != "eu" {
			t.Errorf("%s was done by %s", name, got.Worker)
		}
		says(name, "")
	}
}

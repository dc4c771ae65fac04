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

// call sends a body to a queue's verb and reads the answer into v.
func (d *desk) call(queue, verb, body string, v any) int {
	d.t.Helper()
	res, err := http.Post("http://"+d.n.Addr+"/api/v1/queues/"+queue+":"+verb, "application/json", strings.NewReader(body))
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
func (d *desk) poll(queue, body string) job.PullRun {
	d.t.Helper()
	var a job.PullReply
	if status := d.call(queue, "poll", body, &a); status != http.StatusOK || len(a.Runs) != 1 {
		d.t.Fatalf("%d %+v", status, a)
	}
	return a.Runs[0]
}

// answer is what one run's report or heartbeat is answered with.
func (d *desk) answer(queue, verb, body string) job.PullAnswer {
	d.t.Helper()
	var a job.PullAnswers
	if status := d.call(queue, verb, body, &a); status != http.StatusOK || len(a.Runs) != 1 {
		d.t.Fatalf("%d %+v", status, a)
	}
	return a.Runs[0]
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

func ref(r job.PullRun) string { return fmt.Sprintf(`{"run_id":%q,"fence":%d}`, r.RunID, r.Fence) }

func batchOf(items ...string) string { return `{"runs":[` + strings.Join(items, ",") + `]}` }

// TestWorkersBadInput sends what people get wrong who write a worker or look after queues: each gets an answer that
// says what is wrong, and nothing changes.
func TestWorkersBadInput(t *testing.T) {
	beside(t)
	d := newDesk(t, "--executors", "none")
	first := makeRun(t, d.n, queueSpec("m", "mail"))
	a := d.poll("mail", `{"worker":"w","max":1,"wait":"10s"}`)
	if a.RunID != first.RunID {
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
			if got := d.answer("mail", "heartbeat", `{"worker":"x","runs":[`+ref(a)+`]}`); got.Status != job.PullStale ||
				!strings.Contains(got.Why, `worker "w"`) {
				t.Errorf("%+v", got)
			}
			if got := d.answer("mail", "complete", `{"worker":"x","runs":[`+ref(a)+`]}`); got.Status != job.PullStale ||
				!strings.Contains(got.Why, `worker "w"`) {
				t.Errorf("%+v", got)
			}
			guess := a
			guess.Fence += 5
			for _, verb := range []string{"heartbeat", "complete"} {
				if got := d.answer("mail", verb, batchOf(ref(guess))); got.Status != job.PullStale ||
					!strings.Contains(got.Why, "never given out") {
					t.Errorf("%s: %+v", verb, got)
				}
			}
		})
	})
	t.Run("malformed batch", func(t *testing.T) {
		unchanged(t, func() {
			for _, c := range []struct {
				verb, body string
				code       job.Code
				field      string
			}{
				// The first item would be good: it is not done either.
				{"complete", batchOf(ref(a), `{"run_id":"nope","fence":1}`), job.CodeInvalid, "runs[1].run_id"},
				{"complete", batchOf(ref(a), `{"run_id":"r_1.5.m"}`), job.CodeInvalid, "runs[1].fence"},
				{"complete", batchOf(ref(a), `{"run_id":"r_1.5.m","fence":"1"}`), job.CodeInvalid, "runs[1].fence"},
				{"complete", batchOf(ref(a), `{"run_id":"r_1.5.m","fence":1,"error":"x"}`), job.CodeUnknownField, "runs[1].error"},
				{"complete", batchOf(ref(a), ref(a)), job.CodeInvalid, "runs[1]"},
				{"complete", `{"run":[]}`, job.CodeUnknownField, "run"},
				{"complete", `{"runs":[` + ref(a), job.CodeMalformed, ""},
				{"fail", batchOf(strings.Replace(ref(a), "}", `,"error":"x"}`, 1), `{"run_id":"r_1.5.m","fence":1}`),
					job.CodeInvalid, "runs[1].error"},
				{"fail", batchOf(strings.Replace(ref(a), "}", `,"error":"x","delay":"soon"}`, 1)), job.CodeInvalid,
					"runs[0].delay"},
				{"heartbeat", batchOf(ref(a), `7`), job.CodeInvalid, "runs[1]"},
				{"heartbeat", `{"runs":[]}`, job.CodeInvalid, "runs"},
				{"poll", `{"worker":"v","max":1,"held":[` + ref(a) + `,{"fence":1}]}`, job.CodeInvalid, "held[1].run_id"},
				{"poll", `{"worker":"v","max":-1}`, job.CodeInvalid, "max"},
				{"poll", `{"worker":"v","wait":"2h"}`, job.CodeInvalid, "wait"},
				{"poll", `{"session":"nonsense"}`, job.CodeInvalid, "session"},
			} {
				var p client.Problem
				if status := d.call("mail", c.verb, c.body, &p); status != 400 || p.Code != c.code || p.Field != c.field ||
					p.Message == "" {
					t.Errorf("%s %s: %d %+v", c.verb, c.body, status, p)
				}
			}
		})
	})
	t.Run("old fence", func(t *testing.T) {
		back := d.answer("mail", "fail", batchOf(strings.Replace(ref(a), "}", `,"unstarted":true}`, 1)))
		b := d.poll("mail", `{"worker":"w2","max":1,"wait":"10s"}`)
		if back.Status != job.PullOK || b.RunID != a.RunID || b.Fence <= a.Fence {
			t.Fatalf("%+v %+v", back, b)
		}
		unchanged(t, func() {
			for verb, body := range map[string]string{"complete": batchOf(ref(a)), "heartbeat": batchOf(ref(a)),
				"fail": batchOf(strings.Replace(ref(a), "}", `,"error":"x"}`, 1))} {
				if got := d.answer("mail", verb, body); got.Status != job.PullStale || got.Why == "" {
					t.Errorf("%s: %+v", verb, got)
				} else {
					t.Logf("%s with an old fence: %s", verb, got.Why)
				}
			}
		})
		if got := d.answer("mail", "complete", batchOf(ref(b))); got.Status != job.PullOK || got.Repeated {
			t.Errorf("%+v", got)
		}
		if r := awaitRun(t, d.n, a.RunID, job.RunSucceeded); r.Worker != "w2" || r.Fence != b.Fence || len(r.Attempts) != 1 {
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
	a := d.poll("mail", `{"worker":"w","max":1,"wait":"10s"}`)
	harness.Eventually(t, time.Minute, "it is lost", func() bool {
		d.answer("mail", "heartbeat", `{"worker":"x","runs":[`+ref(a)+`]}`)
		r, err := d.n.Client.GetRun(t.Context(), a.RunID)
		return err == nil && r.Status == job.RunLost
	})
	// The state has it before the leader's own table does: for a moment the lease has ended, and it is being taken back.
	harness.Eventually(t, time.Minute, "it says so", func() bool {
		got := d.answer("mail", "complete", batchOf(ref(a)))
		if got.Status != job.PullStale {
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
	fax := d.poll("fax", `{"worker":"w","max":1,"wait":"10s"}`)
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
	if got := d.answer("fax", "complete", batchOf(ref(fax))); got.Status != job.PullOK {
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

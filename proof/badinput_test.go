package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
	"github.com/carillon-scheduler/carillon/store"
)

// TestBadInputNamesFieldAndRemedy sends what people get wrong to the real binary: each gets an error that names the
// field and the way out, and afterwards nothing has changed.
func TestBadInputNamesFieldAndRemedy(t *testing.T) {
	beside(t)
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), "--executors", "http")
	n.Start()
	post := func(body string) (int, client.Problem) {
		t.Helper()
		resp, err := http.Post("http://"+n.Addr+"/api/v1/jobs", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var p client.Problem
		if resp.StatusCode < 400 {
			return resp.StatusCode, p
		}
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		return resp.StatusCode, p
	}
	spec := func(with string) string {
		return `{"type":"http","payload":{"url":"http://127.0.0.1:1/"},` + with + `}`
	}
	if status, p := post(spec(`"name":"taken","schedule":"@manual"`)); status != 201 {
		t.Fatalf("%d %v", status, p)
	}
	for _, c := range []struct {
		name, body         string
		status             int
		code, field, words string
	}{
		{"unknown zone", spec(`"schedule":"@daily","timezone":"Mars/Phobos"`), 400, "invalid", "timezone", "Mars/Phobos"},
		{"impossible date", spec(`"schedule":"0 0 31 2 *"`), 400, "invalid", "schedule", "never"},
		{"nonsense schedule", spec(`"schedule":"61 * * * *"`), 400, "invalid", "schedule", "61"},
		{"finer than a second", spec(`"schedule":"@every 10ms"`), 400, "invalid", "schedule", "second"},
		{"negative timeout", spec(`"schedule":"@daily","timeout":"-5s"`), 400, "invalid", "timeout", "negative"},
		{"timeout as a number", spec(`"schedule":"@daily","timeout":5`), 400, "invalid", "", "duration"},
		{"10 MB payload", spec(`"schedule":"@daily","tags":{"a":"` + strings.Repeat("x", 10<<20) + `"}`), 413, "too_large",
			"", ""},
		{"large payload", `{"type":"http","schedule":"@daily","payload":{"url":"http://127.0.0.1:1/","body":"` +
			strings.Repeat("x", 200<<10) + `"}}`, 400, "invalid", "payload", "at most"},
		{"duplicate name", spec(`"name":"taken","schedule":"@hourly"`), 409, "duplicate_name", "name", "j_1"},
		{"unknown field", spec(`"shedule":"@daily"`), 400, "unknown_field", "shedule", `"schedule"`},
		{"invalid template", spec(`"schedule":"@daily","idempotency_key":"{job_id}"`), 400, "invalid", "idempotency_key",
			"same key"},
		{"unknown placeholder", spec(`"schedule":"@daily","idempotency_key":"{job_idd}:{run_id}"`), 400, "invalid",
			"idempotency_key", "job_id"},
		{"unknown calendar", spec(`"schedule":"@daily","calendars":["holidays"]`), 400, "invalid", "calendars", "holidays"},
		{"at most once with retries", spec(`"schedule":"@daily","delivery":"at_most_once","retry":{"max_retries":2}`), 400,
			"invalid", "retry.max_retries", "at_most_once"},
		{"not JSON", `{"type":`, 400, "malformed", "", "JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, p := post(c.body)
			said := p.Error.Error()
			if status != c.status || string(p.Code) != c.code || c.field != "" && p.Field != c.field ||
				!strings.Contains(said, c.words) {
				t.Errorf("%d %s: field %q: %s", status, p.Code, p.Field, said)
			}
			if p.Remedy == "" && c.code != "too_large" && c.name != "timeout as a number" {
				t.Errorf("no remedy: %s", said)
			}
		})
	}
	if s, err := n.Client.Status(t.Context()); err != nil || s.Jobs != 1 {
		t.Errorf("after all that there are %d jobs (%v), not the one that was good", s.Jobs, err)
	}

	t.Run("a one-off in the past runs now", func(t *testing.T) {
		target := harness.NewTarget(t)
		status, p := post(`{"type":"http","schedule":"2020-02-02T02:02:02Z","payload":{"url":"` + target.URL + `"}}`)
		if status != 201 {
			t.Fatalf("%d %v", status, p)
		}
		harness.Eventually(t, harness.ReadyLimit, "the late run", func() bool { return target.Done() == 1 })
	})
}

// TestRefusedStarts shows the starts that must not happen, with the words a person sees and the exit code a script
// gets.
func TestRefusedStarts(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	dir := t.TempDir()
	n := harness.NewNode(t, binary, dir)
	n.Start()

	start := func(dir string) (string, int) {
		cmd := exec.CommandContext(t.Context(), binary, "server", "--node-id", "n1", "--listen", harness.FreeAddr(t),
			"--data-dir", dir, "--bootstrap")
		var out bytes.Buffer
		cmd.Stderr = &out
		_ = cmd.Run() // the exit code says it
		return out.String(), cmd.ProcessState.ExitCode()
	}
	refused := func(t *testing.T, dir string, words ...string) {
		t.Helper()
		before := contents(t, dir)
		said, code := start(dir)
		if code == 0 {
			t.Errorf("exit code %d: %s", code, said)
		}
		for _, w := range words {
			if !strings.Contains(said, w) {
				t.Errorf("it does not say %q: %s", w, said)
			}
		}
		for name, data := range contents(t, dir) {
			// Opening a bbolt file that is in order writes a new meta page; what it holds is the same.
			if was, had := before[name]; !had || was != data && name != "/"+datadir.LogFile {
				t.Errorf("%s was changed", name)
			}
		}
	}

	t.Run("directory in use", func(t *testing.T) {
		said, code := start(dir)
		if code == 0 || !strings.Contains(said, "in use") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
	n.Stop()
	t.Run("newer format", func(t *testing.T) {
		copied := copyDir(t, dir)
		edit(t, filepath.Join(copied, datadir.StateFile), func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte("meta"))
			return b.Put([]byte("info"),
				bytes.Replace(b.Get([]byte("info")), fmt.Appendf(nil, `"format":%d`, store.Format), []byte(`"format":99`), 1))
		})
		refused(t, copied, "format", "newer carillon")
	})
	t.Run("corrupt data file", func(t *testing.T) {
		copied := copyDir(t, dir)
		path := filepath.Join(copied, datadir.StateFile)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range data[:2*os.Getpagesize()] { // both meta pages
			data[i] ^= 0x5a
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, copied, "state.db", "damaged", "restore a backup")
	})
	t.Run("the log was lost", func(t *testing.T) {
		copied := copyDir(t, dir)
		if err := os.Remove(filepath.Join(copied, datadir.LogFile)); err != nil {
			t.Fatal(err)
		}
		refused(t, copied, "lost its raft.db", "restore a backup")
	})
	t.Run("unreachable server", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), binary, "jobs", "--addr", n.Addr).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 5 || !strings.Contains(string(out), "carillon dev") {
			t.Errorf("%v: %s", err, out)
		}
	})
	if err := harness.Check(binary, dir); err != nil {
		t.Error(err)
	}
}

// contents is every file below a directory but the lock, which a start may touch.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := harness.CopyDir(to, dir); err != nil {
		t.Fatal(err)
	}
	return to
}

func edit(t *testing.T, path string, fn func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

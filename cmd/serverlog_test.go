package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// logLines are the lines of a log, each of which must be JSON.
func logLines(t *testing.T, log []byte) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(string(log)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["msg"] == nil || m["level"] == nil {
			t.Errorf("not a line of the log: %q", line)
		}
		lines = append(lines, m)
	}
	return lines
}

func event(lines []map[string]any, msg string) map[string]any {
	for _, m := range lines {
		if m["msg"] == msg {
			return m
		}
	}
	return nil
}

const logEnv = "CARILLON_CMD_TEST_MAIN"

// TestMain lets this binary be carillon: what a process prints in its life can only be seen of a process.
func TestMain(m *testing.M) {
	if os.Getenv(logEnv) != "" {
		os.Exit(Main())
	}
	var err error
	if scratch, err = os.MkdirTemp("", "carillon-cmd"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch) //nolint:errcheck // it is for temporary files
	os.Exit(code)
}

// scratch is a directory for what tests share.
var scratch string

// start runs this binary as carillon until a line of its standard error has the text, stops it, and returns what it
// wrote.
func startUntil(t *testing.T, env []string, text string, args ...string) []byte {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stderr")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(exe, args...)
	cmd.Stderr, cmd.Env = f, append(append(os.Environ(), logEnv+"=1"), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for text != "" {
		log, _ := os.ReadFile(file)
		if bytes.Contains(log, []byte(text)) {
			break
		}
		select {
		case <-ended:
			t.Fatalf("it ended:\n%s", log)
		case <-ctx.Done():
			cmd.Process.Kill() //nolint:errcheck // the test has failed
			t.Fatalf("no %q in:\n%s", text, log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if text != "" {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	}
	<-ended
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// The first line says that a node is secure if its listener makes it that, and not the join token.
func TestFirstLineOfASecureNode(t *testing.T) {
	token := keys.NewToken(keys.JoinToken, keys.Hash{1}).Text()
	log := startUntil(t, nil, `"node starting"`, "server", "--node-id", "n1", "--data-dir", t.TempDir(), "--listen", "0.0.0.0:0",
		"--advertise", "n1.invalid:7400", "--join", "127.0.0.1:1", "--token", token, "--log-format", "json")
	begin := event(logLines(t, log), "node starting")
	config, _ := begin["config"].(map[string]any)
	if config["secure"] != "true" || config["token"] != "hidden" || bytes.Contains(log, []byte(token)) {
		t.Errorf("%v", begin)
	}
}

// With --log-format json every line on standard error is one, from the first to the last, and the first says what was
// started. No secret is in it.
func TestJSONLogsHaveNoOtherLines(t *testing.T) {
	addr := port.Reserve(t)
	log := func() []byte {
		return startUntil(t, []string{"CARILLON_SMTP_PASSWORD=geheim-1"}, `"serving"`, "server", "--node-id", "n1",
			"--data-dir", t.TempDir(), "--listen", addr, "--bootstrap", "--log-format", "json",
			"--broker", "b=nats://user:geheim-2@127.0.0.1:1", "--notify-webhook", "ops=http://127.0.0.1:1/geheim-3", "--slots",
			"7")
	}()
	lines := logLines(t, log)
	if bytes.Contains(log, []byte("geheim")) {
		t.Errorf("a secret is in the log: %s", log)
	}
	begin := event(lines, "node starting")
	config, _ := begin["config"].(map[string]any)
	if begin["version"] == nil || config["slots"] != "7" || config["broker"] != "[b]" ||
		config["notify-webhook"] != "[ops]" || config["listen"] != addr {
		t.Errorf("%v", begin)
	}
	if event(lines, "serving") == nil || event(lines, "stopping") == nil {
		t.Errorf("%s", log)
	}
	if config["secure"] != "false" || config["token"] != nil || config["pprof"] != nil { // what was not given is not said
		t.Errorf("%v", begin)
	}
	for _, args := range [][]string{
		{"server", "--log-format", "json"},
		{"server", "--log-format=json", "--nonsense"},
		{"worker", "--log-format", "json", "--join", "nonsense"},
	} {
		if m := event(logLines(t, startUntil(t, nil, "", args...)), "command failed"); m["error"] == nil ||
			m["exit_code"] != 2.0 {
			t.Errorf("%v: %v", args, m)
		}
	}
}

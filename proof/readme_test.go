package proof

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// terminal is a shell that is told one line after the other, as by a person.
type terminal struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

const prompt = "--- exit "

// openTerminal starts a shell with job control that finds the binary under its name. What is started in it ends with
// it.
func openTerminal(t *testing.T, binary string) *terminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the lines are for a shell with job control")
	}
	bin := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(bin, "carillon")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, "--norc", "--noprofile")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CARILLON_ADDR=")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A test that dies closes the input, and the shell goes and takes its jobs with it.
	fmt.Fprintln(in, "set -m; trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT")
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return &terminal{t, in, bufio.NewScanner(out)}
}

// types enters a line and returns what it printed and how it ended.
func (s *terminal) types(line string) (said string, ok bool) {
	s.t.Helper()
	// A newline of its own: the last line may be a comment, and a job in the background must not hold the output open.
	fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", line, prompt)
	for s.out.Scan() {
		if code, end := strings.CutPrefix(s.out.Text(), prompt); end {
			return said, code == "0"
		}
		said += s.out.Text() + "\n"
	}
	s.t.Fatalf("the shell ended at %q: %v", line, s.out.Err())
	return "", false
}

var (
	threeCopies = regexp.MustCompile("(?s)\\*\\*Three copies are one scheduler\\.\\*\\*.*?```sh\n(.*?)```\n.*?" +
		"```sh\n(.*?)```\n(.*?)\n## Try it\n.*?```sh\n(.*?)```\n")
	inline = regexp.MustCompile("`([^`]+)`")
)

// TestReadmeThreeCopies does what the README tells a reader to do: three copies, and then kill the leader, start it again
// with the same command, and n1 once more with its directory lost: there is one cluster, and what was in it is still
// there. Then it tries the first jobs. Only the ports and the directories are others.
func TestReadmeThreeCopies(t *testing.T) {
	heavy(t)
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(harness.Sources(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	part := threeCopies.FindStringSubmatch(string(text))
	if part == nil {
		t.Fatal("the README no longer says how to start three copies, kill the leader and try it")
	}
	lines := func(i int) []string { return strings.Split(strings.TrimSpace(part[i]), "\n") }
	kill := lines(2)
	var then []string
	for _, m := range inline.FindAllStringSubmatch(part[3], 3) {
		then = append(then, strings.ReplaceAll(m[1], "\n", " "))
	}
	if len(kill) != 4 || len(then) != 3 || !strings.HasPrefix(kill[1], "kill -9 ") ||
		!strings.HasSuffix(then[0], "rm -r /tmp/n1") || then[1] != "carillon status --addr 127.0.0.1:7400" ||
		!strings.HasPrefix(then[2], "carillon cluster remove n1 --addr ") {
		t.Fatalf("the README no longer says how to kill a node: %q %q", kill, then)
	}
	dir, pairs := t.TempDir(), []string{}
	for i := range 3 {
		pairs = append(pairs, fmt.Sprintf("127.0.0.1:740%d", i), harness.FreeAddr(t), fmt.Sprintf("/tmp/n%d", i+1),
			filepath.Join(dir, fmt.Sprint(i)))
	}
	ours := strings.NewReplacer(pairs...)
	s := openTerminal(t, harness.Build(t))
	submit, start := "", map[string]string{}
	for i, line := range lines(1) {
		line = ours.Replace(line)
		if strings.HasPrefix(line, "carillon submit ") {
			submit = line // when the first leads
			continue
		}
		before, comment, _ := strings.Cut(line, "#")
		if strings.HasSuffix(strings.TrimSpace(before), "&") { // what a server says does not belong between the answers
			line = strings.Replace(before, " &", fmt.Sprintf(" >>%s 2>&1 &", filepath.Join(dir, fmt.Sprintf("log%d", i))), 1)
			start[fmt.Sprintf("n%d", len(start)+1)] = line
		}
		said, ok := s.types(line)
		if strings.Contains(line, "carillon status ") {
			// It may come before the nodes are there; a person asks again.
			if !harness.Within(harness.ReadyLimit,
				func() bool { said, ok = s.types(line); return ok && strings.Contains(said, "n3") }) {
				t.Fatalf("%s\n%s", line, said)
			}
			t.Logf("%s\n%s(%s)", line, said, strings.TrimSpace(comment))
		}
	}
	status := func() (st client.Status, ok bool) {
		said, ok := s.types("carillon status --json")
		return st, ok && json.Unmarshal([]byte(said), &st) == nil
	}
	harness.Eventually(t, harness.ReadyLimit, "three voters and workers", func() bool {
		st, ok := status()
		voters := 0
		for _, m := range st.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		return ok && st.Ready && voters == 3 && len(st.Workers) == 3
	})
	if said, ok := s.types(submit); submit == "" || !ok {
		t.Fatalf("%q: %s", submit, said)
	}
	ran := func(since time.Time) bool { // a run of an occurrence after that went well
		said, _ := s.types("carillon runs tick --json")
		var page struct {
			Runs []job.Run `json:"runs"`
		}
		_ = json.Unmarshal([]byte(said), &page) // no answer is no run
		return slices.ContainsFunc(page.Runs, func(r job.Run) bool {
			return r.Status == job.RunSucceeded && r.ScheduledAt > job.At(since)
		})
	}
	harness.Eventually(t, harness.ReadyLimit, "it runs", func() bool { return ran(time.Time{}) })

	st, _ := status()
	led, killed := st.Leader, time.Now()
	for _, line := range kill[:2] {
		if said, ok := s.types(line); !ok {
			t.Fatalf("%s: %s", line, said)
		}
	}
	var said string
	harness.Eventually(t, harness.ReadyLimit, "another one leads", func() bool {
		var ok bool
		said, ok = s.types(kill[2])
		return ok && strings.Contains(said, "led by n") && !strings.Contains(said, "led by "+led+" ")
	})
	t.Logf("%s\n%s", kill[2], said)
	// Should the killed one have been at work on a run, the next ones are skipped until its lease ends.
	harness.Eventually(t, 2*time.Minute, "the runs go on", func() bool { return ran(killed) })
	if said, ok := s.types(kill[3]); !ok {
		t.Errorf("%s: %s", kill[3], said)
	}

	back := func(what, id string) {
		t.Helper()
		at := pairs[4*(int(id[1]-'0')-1)+1]
		harness.Eventually(t, harness.ReadyLimit, what, func() bool {
			out, ok := s.types("carillon status --json --addr " + at)
			var now client.Status
			return ok && json.Unmarshal([]byte(out), &now) == nil && now.Ready && now.ClusterID == st.ClusterID &&
				len(now.Members) == 3
		})
	}
	again := func(id string) {
		t.Helper()
		if said, ok := s.types(start[id]); !ok {
			t.Fatalf("%s: %s", start[id], said)
		}
	}
	again(led)
	back("it is back", led)
	if said, ok := s.types(ours.Replace(then[0])); !ok {
		t.Fatalf("%s: %s", then[0], said)
	}
	again("n1")
	harness.Eventually(t, harness.ReadyLimit, "n1 says what to do", func() bool {
		said, _ = s.types(ours.Replace(then[1]))
		return strings.Contains(said, "carillon cluster remove n1") && strings.Contains(said, "none yet")
	})
	t.Logf("%s\n%s", start["n1"], said)
	harness.Eventually(t, harness.ReadyLimit, "`"+then[2]+"`", func() bool {
		said, ok := s.types(ours.Replace(then[2]))
		return ok && strings.Contains(said, "no longer a member")
	})
	back("it is a member again", "n1")
	if said, ok := s.types("carillon jobs get tick"); !ok {
		t.Errorf("the job is gone: %s", said)
	}
	s.types("cd '" + harness.Sources(t) + "'")
	for _, line := range lines(4) {
		if said, ok := s.types(line); !ok {
			t.Errorf("%s: %s", line, said)
		}
	}
	name := strings.Fields(lines(4)[4])[3] // carillon jobs run NAME
	harness.Eventually(t, harness.ReadyLimit, "the first job to try runs", func() bool {
		said, ok := s.types("carillon runs " + name)
		return ok && strings.Contains(said, "succeeded")
	})
}

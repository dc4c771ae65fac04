//go:build linux

package executor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/job"
)

// theUsers skips a test that needs more users than this machine has.
func theUsers(t *testing.T, names ...string) {
	t.Helper()
	onlyRoot(t)
	for _, n := range names {
		if _, err := user.Lookup(n); err != nil {
			t.Skipf("there is no user %s", n)
		}
	}
}

func jobOf(t *testing.T, namespace string, p job.ShellPayload, secrets ...string) job.Assignment {
	a := shellJob(t, p)
	a.Namespace, a.Secrets = namespace, secrets
	return a
}

// A command runs as the user of its namespace, and a job names those that its namespace may have.
func TestShellUserOfANamespace(t *testing.T) {
	theUsers(t, "daemon", "bin", "mail", "man")
	s := newTestShell(t, ShellOptions{User: []string{"nobody", "team-a=daemon"}, Users: []string{"mail", "daemon", "team-b=bin"}})
	strict := newTestShell(t, ShellOptions{User: []string{"team-a=daemon"}})
	for _, c := range []struct {
		s                     *Shell
		namespace, user, want string
	}{
		{s, "", "", "nobody"}, {s, "default", "", "nobody"}, {s, "team-c", "", "nobody"}, {s, "team-a", "", "daemon"},
		{s, "team-a", "daemon", "daemon"}, {s, "team-a", "mail", "mail"}, {s, "team-c", "nobody", "nobody"}, {s, "team-b", "bin", "bin"},
		{s, "team-a", "nobody", "--shell-users team-a=nobody"},
		{s, "team-c", "daemon", `"daemon" is the user of another namespace`}, {s, "", "daemon", `"daemon" is the user of another namespace`},
		{s, "team-c", "bin", "--shell-users team-c=bin"}, {s, "", "man", "--shell-users man,"},
		{strict, "team-a", "", "daemon"}, {strict, "", "", "--shell-user default=USER"}, {strict, "team-b", "", "--shell-user team-b=USER"},
		{strict, "team-b", "daemon", "--shell-users team-b=daemon"},
	} {
		r := c.s.Run(t.Context(), jobOf(t, c.namespace, job.ShellPayload{Command: "id -un", User: c.user}))
		if strings.TrimSpace(r.Output) != c.want && !strings.Contains(r.Error, c.want) || r.Permanent {
			t.Errorf("a job of %q that names %q: %+v, want %q", c.namespace, c.user, r, c.want)
		}
	}
	if _, err := NewShell(ShellOptions{User: []string{"team-a=daemon"}, Users: []string{"team-b=daemon"}}); err == nil ||
		!strings.Contains(err.Error(), "daemon is the user of team-a") {
		t.Errorf("%v", err)
	}
}

const loot = `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep correct-horse; true`

// Who may write shell jobs in one namespace looks for the secrets of another: in the environment of all processes. As
// long as commands of all namespaces ran as one user they were there.
func TestShellSecretsOfAnotherNamespace(t *testing.T) {
	theUsers(t, "daemon")
	dir := openDir(t)
	begin := func(s *Shell, file string) (result chan job.Result) {
		result = make(chan job.Result, 1)
		go func() {
			result <- s.Run(t.Context(), jobOf(t, "team-a", job.ShellPayload{Env: map[string]string{"K": secretValue},
				Command: fmt.Sprintf("echo $$ >%s/%s; while ! [ -e %[1]s/go ]; do sleep 0.01; done", dir, file)}, secretValue))
		}()
		return result
	}
	s := newTestShell(t, ShellOptions{User: []string{unprivileged, "team-a=daemon"}})
	result := begin(s, "up")
	pidIn(t, filepath.Join(dir, "up"))
	if r := s.Run(t.Context(), jobOf(t, "team-b", job.ShellPayload{Command: loot})); r.Outcome != job.OutcomeSucceeded || r.Output != "" {
		t.Errorf("team-b has what is team-a's: %+v", r)
	}
	// The test shows nothing if it is not there for the same user.
	u, err := user.Lookup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	peek := exec.Command("/bin/sh", "-c", loot)
	peek.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if out, err := peek.CombinedOutput(); err != nil || !strings.Contains(string(out), secretValue) {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Outcome != job.OutcomeSucceeded {
		t.Errorf("%+v", r)
	}
	shared := newTestShell(t, ShellOptions{User: []string{unprivileged}})
	if r := <-begin(shared, "shared"); !strings.Contains(r.Error, "--shell-user team-a=USER") || r.Outcome != job.OutcomeFailed || r.Permanent {
		t.Errorf("a command with secrets, as a user that others have: %+v", r)
	}
}

// Commands with secrets run only as a user that no other namespace has, has had, or gets meanwhile.
func TestShellSecretsNeedAUser(t *testing.T) {
	run := func(s *Shell, namespace string, secrets ...string) job.Result {
		t.Helper()
		return s.Run(t.Context(), jobOf(t, namespace, job.ShellPayload{Command: "true"}, secrets...))
	}
	fine := func(r job.Result) {
		t.Helper()
		if r.Outcome != job.OutcomeSucceeded {
			t.Errorf("%+v", r)
		}
	}
	s := newTestShell(t, ShellOptions{})
	fine(run(s, "", secretValue))
	wantFailure(t, run(s, "team-a", secretValue), false, "may run as the user", "--shell-user team-a=USER")
	fine(run(s, "", secretValue)) // what was refused never ran
	dir := t.TempDir()
	result := make(chan job.Result, 1)
	go func() {
		result <- s.Run(t.Context(), jobOf(t, "default", job.ShellPayload{
			Command: fmt.Sprintf("echo $$ >%s/up; while ! [ -e %[1]s/go ]; do sleep 0.01; done", dir)}, secretValue))
	}()
	pidIn(t, filepath.Join(dir, "up"))
	fine(run(s, ""))
	wantFailure(t, run(s, "team-b"), false, "a command of another namespace has secrets", "--shell-user team-b=USER")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fine(<-result)
	fine(run(s, "team-b"))
	wantFailure(t, run(s, "", secretValue), false, "ran as the user", "--shell-user default=USER")
	fine(run(s, ""))
	fine(run(s, "team-b"))
	wantFailure(t, run(s, "default", secretValue), false, "ran as the user")

	// A worker of one namespace has it for itself.
	s = newTestShell(t, ShellOptions{Namespace: "team-a"})
	fine(run(s, "team-a"))
	fine(run(s, "team-a", secretValue))

	// The command of a queue is the operator's: it reads nobody's secrets, and others could read its own.
	queue := func(types ...job.Type) *Tools {
		tools, err := NewTools(ToolsOptions{Types: append(types, job.TypeQueue), QueueCommand: "cat"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tools.Close)
		return tools
	}
	take := func(tools *Tools, namespace string, secrets ...string) job.Result {
		a := jobOf(t, namespace, job.ShellPayload{}, secrets...)
		a.Type, a.Payload = job.TypeQueue, []byte(`{"queue":"q"}`)
		return tools.Runners[job.TypeQueue].Run(t.Context(), a)
	}
	alone, beside := queue(), queue(job.TypeShell)
	fine(take(alone, "team-a", secretValue))
	fine(take(alone, "team-b", secretValue))
	wantFailure(t, take(beside, "team-a", secretValue), false, "--shell-user team-a=USER")
	fine(take(beside, "team-a"))
	fine(take(beside, "", secretValue))

	theUsers(t, "daemon", "mail")
	for _, c := range []struct {
		o                       ShellOptions
		namespace, user, refuse string
	}{
		{ShellOptions{User: []string{"nobody", "team-a=daemon"}}, "team-a", "", ""},
		{ShellOptions{User: []string{"nobody", "team-a=daemon"}}, "team-b", "", "--shell-user team-b=USER"},
		{ShellOptions{User: []string{"nobody", "team-a=nobody"}}, "team-a", "", "--shell-user team-a=USER"},
		{ShellOptions{User: []string{"default=nobody", "team-a=nobody"}}, "", "", "--shell-user default=USER"},
		{ShellOptions{User: []string{"nobody"}, Users: []string{"mail"}}, "", "mail", ""},
		{ShellOptions{User: []string{"nobody"}, Users: []string{"mail"}}, "team-a", "mail", "--shell-user team-a=USER"},
		{ShellOptions{User: []string{"nobody"}, Users: []string{"team-a=mail"}}, "team-a", "mail", ""},
		{ShellOptions{User: []string{"nobody"}, Users: []string{"team-a=mail", "team-b=mail"}}, "team-a", "mail", "--shell-user team-a=USER"},
		{ShellOptions{User: []string{"nobody", "team-a=daemon"}, Users: []string{"daemon"}}, "team-a", "", ""},
		{ShellOptions{User: []string{"nobody"}, Namespace: "team-a"}, "team-a", "", ""},
		{ShellOptions{User: []string{"nobody", "team-a=daemon"}, Users: []string{"root"}}, "team-a", "", "--shell-user team-a=USER"},
		{ShellOptions{User: []string{"nobody", "team-a=daemon"}, Users: []string{"team-b=root"}}, "", "", "--shell-user default=USER"},
		{ShellOptions{User: []string{"team-a=daemon"}, AsNode: true}, "team-a", "", "--shell-user team-a=USER"},
		{ShellOptions{Users: []string{"mail"}}, "", "mail", ""},
	} {
		s := newTestShell(t, c.o)
		r := s.Run(t.Context(), jobOf(t, c.namespace, job.ShellPayload{Command: "true", User: c.user}, secretValue))
		if (r.Outcome == job.OutcomeSucceeded) != (c.refuse == "") || !strings.Contains(r.Error, c.refuse) {
			t.Errorf("%v %v, a job of %q as %q: %+v", c.o.User, c.o.Users, c.namespace, c.user, r)
		}
	}
}

// No command gains rights by the programs that it starts, whichever way it was started itself. The rest of the process
// keeps what it has.
func TestShellGainsNoRights(t *testing.T) {
	for name, limits := range map[string]job.ShellLimits{"directly": {}, "confined": {OpenFiles: 100}} {
		s := newTestShell(t, ShellOptions{Limits: limits})
		if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "grep NoNewPrivs /proc/self/status"})); r.Output != "NoNewPrivs:\t1\n" {
			t.Errorf("%s: %+v", name, r)
		}
		s.Close()
	}
	eventually(t, "the end of the threads that gave it up", func() bool {
		files, _ := filepath.Glob("/proc/self/task/*/status")
		for _, f := range files {
			b, _ := os.ReadFile(f)
			if strings.Contains(string(b), "NoNewPrivs:\t1") && filepath.Base(filepath.Dir(f)) != strconv.Itoa(os.Getpid()) {
				return false // the first thread never ends, but does nothing any more
			}
		}
		return len(files) > 0
	})

	onlyRoot(t)
	id, err := exec.LookPath("id")
	if err != nil {
		t.Skip(err)
	}
	data, err := os.ReadFile(id)
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(openDir(t), "id")
	if err := os.WriteFile(tool, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tool, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	before := exec.Command(tool, "-u")
	before.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := before.Output(); err != nil || string(out) != "0\n" {
		t.Skipf("setuid programs gain nothing here: %q, %v", out, err)
	}
	s := newTestShell(t, ShellOptions{User: []string{unprivileged}})
	if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Argv: []string{tool, "-u"}})); r.Output != "65534\n" {
		t.Errorf("%+v", r)
	}
}

// closedTree is a directory that every user can enter, with a directory that only root can, and one below that which is
// open: with a file, a directory and a program in it.
func closedTree(t *testing.T) (closed, below string) {
	t.Helper()
	closed = filepath.Join(openDir(t), "closed")
	below = filepath.Join(closed, "proj")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Mkdir(below, 0o755),
		os.WriteFile(filepath.Join(below, "file"), []byte(secretValue), 0o644),
		os.WriteFile(filepath.Join(below, "tool"), []byte("#!/bin/sh\necho "+secretValue+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return closed, below
}

// What a job names is looked up with the rights of its user, where its commands are: a job gets nowhere by its directory
// or its PATH, and learns nothing by its errors, that its command could not itself.
func TestShellLooksUpAsTheUser(t *testing.T) {
	onlyRoot(t)
	closed, below := closedTree(t)
	own := openDir(t)
	link := filepath.Join(own, "link")
	if err := errors.Join(os.Symlink(below, link), os.WriteFile(filepath.Join(own, "file"), nil, 0o644),
		os.WriteFile(filepath.Join(own, "tool"), []byte("#!/bin/sh\necho from the tool\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	node := "/proc/" + strconv.Itoa(os.Getpid())
	isolated := newTestShell(t, ShellOptions{User: []string{unprivileged}, Cgroup: "none"})
	seen := newTestShell(t, ShellOptions{User: []string{unprivileged}, Cgroup: "none"})
	seen.isolated = false
	for way, s := range map[string]*Shell{"isolated": isolated, "seen": seen} {
		run := func(p job.ShellPayload) job.Result {
			t.Helper()
			return s.Run(t.Context(), shellJob(t, p))
		}
		for _, dir := range []string{below, closed, link, filepath.Join(below, "file"), filepath.Join(closed, "absent"),
			filepath.Join(below, "absent"), node + "/cwd", node + "/root"} {
			r := run(job.ShellPayload{Command: "pwd; ls; cat file", Dir: dir})
			want := "not started: chdir " + dir + ": permission denied"
			if s.isolated && strings.HasPrefix(dir, "/proc") {
				want = "not started: chdir " + dir + ": no such file or directory"
			}
			if r.Error != want || r.Output != "" || r.Outcome != job.OutcomeFailed || r.Permanent {
				t.Errorf("%s, in %s: %+v", way, dir, r)
			}
		}
		// What its user may know, it is told.
		wantFailure(t, run(job.ShellPayload{Command: "true", Dir: filepath.Join(own, "absent")}), false, "no such file or directory")
		wantFailure(t, run(job.ShellPayload{Command: "true", Dir: filepath.Join(own, "file")}), false, "not a directory")
		if r := run(job.ShellPayload{Command: "pwd -P; echo $HOME", Dir: own}); r.Output != own+"\n/\n" {
			t.Errorf("%s: %+v", way, r)
		}

		tool := func(argv0, path string) job.ShellPayload {
			return job.ShellPayload{Argv: []string{argv0}, Env: map[string]string{"PATH": path}, Dir: own}
		}
		there, absent := run(tool("tool", below)), run(tool("tool", filepath.Join(below, "absent")))
		if there.Error != absent.Error || !strings.HasSuffix(there.Error, `"tool" was not found on PATH`) || there.Permanent {
			t.Errorf("%s: %+v, but for one that is not there %+v", way, there, absent)
		}
		for _, p := range []job.ShellPayload{tool("tool", below+":"+own), tool("./tool", ""), tool(own+"/tool", "/bin")} {
			if r := run(p); r.Output != "from the tool\n" {
				t.Errorf("%s: %+v", way, r)
			}
		}
		if r := run(job.ShellPayload{Command: "true", Env: map[string]string{"HOME": "/own"}}); r.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s: %+v", way, r)
		}
		if r := run(job.ShellPayload{Command: "echo $HOME", Env: map[string]string{"HOME": "/own"}}); r.Output != "/own\n" {
			t.Errorf("%s: %+v", way, r)
		}
	}
	if !isolated.isolated {
		t.Skip("no PID namespace can be made here")
	}
	// The directory is found after /proc was mounted: what it shows are the command's own processes.
	if r := isolated.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "echo [0-9]*; cat 1/comm", Dir: "/proc"})); r.Outcome != job.OutcomeSucceeded || len(strings.Fields(r.Output)) > 4 {
		t.Errorf("the processes of the machine: %+v", r)
	}
}

// A home that its user cannot enter is none.
func TestShellHomeAsTheUser(t *testing.T) {
	onlyRoot(t)
	_, below := closedTree(t)
	who, err := user.Lookup(unprivileged)
	if err != nil {
		t.Fatal(err)
	}
	s := newTestShell(t, ShellOptions{User: []string{unprivileged}, Cgroup: "none"})
	for home, want := range map[string]string{below: "/", openDir(t): "", "/no/such": "/"} {
		if want == "" {
			want = home
		}
		who.HomeDir = home
		a := shellJob(t, job.ShellPayload{Command: "pwd -P; echo $HOME; cat file 2>/dev/null; true"})
		cmd, _ := s.command(job.ShellPayload{Argv: []string{"/bin/sh", "-c", "pwd -P; echo $HOME; cat file 2>/dev/null; true"}}, a, newMark(), who)
		var out bytes.Buffer
		cmd.Stdout = &out
		_, begun, err := s.prepare(cmd, launch{}, who, a)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.spawn.start(cmd), cmd.Wait()); err != nil || out.String() != want+"\n"+want+"\n" {
			t.Errorf("at home in %s: %v, %s", home, err, &out)
		}
		if _, err := begun.end(); err != nil {
			t.Error(err)
		}
	}
}

// The command of a queue runs where the operator started the worker, also if its user could not go there.
func TestQueueCommandStaysWithItsWorker(t *testing.T) {
	onlyRoot(t)
	_, below := closedTree(t)
	for _, isolated := range []bool{true, false} {
		s := newTestShell(t, ShellOptions{User: []string{unprivileged}, Cgroup: "none"})
		if s.isolated = s.isolated && isolated; isolated && !s.isolated {
			continue
		}
		r := (&Queue{Shell: s, Command: "id -un; echo $HOME; cat file", Dir: below}).Run(t.Context(), job.Assignment{Payload: []byte(`{"queue":"mail"}`)})
		if r.Outcome != job.OutcomeSucceeded || !strings.HasPrefix(r.Output, unprivileged+"\n/\n") {
			t.Errorf("isolated %v: %+v", isolated, r)
		}
	}
}

// The process between the node and the command has the node's rights: variables that a job chose mean nothing to it.
func TestShellEnvironmentIsTheCommands(t *testing.T) {
	p := job.ShellPayload{Command: "echo $GODEBUG $CARILLON_FENCE", Env: map[string]string{"GODEBUG": "inittrace=1", "CARILLON_FENCE": "1"}}
	check := func(o ShellOptions) {
		t.Helper()
		if r := newTestShell(t, o).Run(t.Context(), shellJob(t, p)); r.Output != "inittrace=1 77\n" {
			t.Errorf("%+v", r)
		}
	}
	check(ShellOptions{})
	check(ShellOptions{Limits: job.ShellLimits{OpenFiles: 100}})
	onlyRoot(t)
	check(ShellOptions{User: []string{unprivileged}})
}

// Descriptors that the node inherited are not handed on to commands, whichever way these are started.
func TestShellInheritsNoDescriptors(t *testing.T) {
	f := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(f, []byte(secretValue), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(env ...string) {
		t.Helper()
		file, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		node := exec.Command(os.Args[0])
		node.ExtraFiles = []*os.File{9 - 3: file}
		node.Env = append(append(os.Environ(), "EXECUTOR_TEST_HELPER="+t.TempDir(),
			"EXECUTOR_TEST_SCRIPT=echo begun; for n in 3 4 5 6 7 8 9; do eval \"cat <&$n\"; done 2>/dev/null; echo ended"), env...)
		out, err := node.CombinedOutput()
		if err != nil || strings.Contains(string(out), secretValue) || !strings.Contains(string(out), "begun\n") {
			t.Errorf("%v: %s", err, out)
		}
	}
	check()
	check("EXECUTOR_TEST_FILES=100")
	onlyRoot(t)
	check("EXECUTOR_TEST_USER=" + unprivileged)
}

// Without close_range descriptors are found where the system lists them.
func TestCloseListedOnExec(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	marked := func() bool {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil && flags&unix.FD_CLOEXEC != 0
	}
	if marked() {
		t.Fatal("the test shows nothing")
	}
	if err := closeListedOnExec("/proc/self/fd"); err != nil || !marked() {
		t.Errorf("%v", err)
	}
	if closeListedOnExec("/no/such") == nil {
		t.Error("nothing was found, and nothing said")
	}
}

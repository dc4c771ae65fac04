//go:build unix

package executor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	defaultGrace = 5 * time.Second
	envHome      = "HOME="
	envPath      = "PATH="
	defaultPath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// pipeDelay is how long the output is waited for once the command and its group are gone: only a process that left
	// the group can still hold the pipe.
	pipeDelay = 500 * time.Millisecond
	// exitPermanent is the exit status by which a command says that trying again is useless; docs/jobs.md promises it.
	// It is none that shells (1, 2, 126 and above) or sysexits.h (64 to 78) use.
	exitPermanent = 100
	// liveBytes is how much of the output is kept for those who watch; the history gets the end of it.
	liveBytes = 32 << 10
	// defaultProcesses bounds a fork bomb where no limit was given and a cgroup can.
	defaultProcesses = 4096
)

// ShellOptions describe a Shell runner.
type ShellOptions struct {
	// Dir is where the process groups that live are noted, for ClearLeftovers. Empty: they are not.
	Dir string
	// Limits bound every attempt; a job may ask for less.
	Limits job.ShellLimits
	// User is who commands run as: NAMESPACE=USER for those of one namespace, USER for all others; none: as this
	// process. Users are those that a job may name, in one namespace or in all. Both need root.
	User, Users []string
	// Namespace is the only one that runs come from; empty: all of them do.
	Namespace string
	// Apart has commands run as other users than this process and the owner of Private, which they cannot read.
	// AsNode asks for the opposite.
	Apart, AsNode bool
	Private       string
	// Cgroup is a directory of cgroup version 2 below which every attempt gets a group of its own, which ends with it;
	// "auto": the one that this process is in, if it runs as root and can; "none": none. Empty: auto if there is a
	// limit that it serves, else none.
	Cgroup string
	// Grace is the time between SIGTERM and SIGKILL. 0: 5 s.
	Grace time.Duration
	// Logger is told what keeps commands apart; nil: nobody is.
	Logger *slog.Logger

	operated bool // all commands are the operator's own
}

// Shell runs shell jobs: each in a process group of its own, which does not outlive the attempt.
type Shell struct {
	o       ShellOptions
	users   shellUsers
	turns   turns
	home    string
	place   Place
	spawn   *spawner
	cgroups *cgroups // nil: none

	isolated bool // commands that run as other users see their own processes only
}

// NewShell makes a Shell runner. Close it when no attempt is running.
func NewShell(o ShellOptions) (*Shell, error) {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	users, err := o.parseUsers()
	if err != nil {
		return nil, err
	}
	if err := o.checkApart(users); err != nil {
		return nil, err
	}
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("executor: notes of process groups: %w", err)
		}
	}
	if err := o.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("executor: shell limits: %w", err)
	}
	if err := users.find(); err != nil {
		return nil, fmt.Errorf("executor: shell users: %w", err)
	}
	s := &Shell{o: o, users: users, turns: turns{ran: map[int]string{}, secrets: map[int]map[string]int{}}}
	if o.Cgroup == "" && o.Limits.Memory == 0 && o.Limits.Processes == 0 {
		o.Cgroup = "none"
	}
	if s.cgroups, err = newCgroups(o.Cgroup); err != nil {
		return nil, fmt.Errorf("executor: cgroup of shell jobs: %w", err)
	}
	if o.Limits.Processes > 0 && s.cgroups == nil && s.asProcess() && os.Geteuid() == 0 {
		return nil, errors.New("executor: only a cgroup can limit the processes of root, and there is none: name a " +
			"user to run shell jobs as, or a cgroup")
	}
	s.home = os.Getenv("HOME")
	if st, err := os.Stat(s.home); err != nil || !st.IsDir() {
		s.home = "/"
	}
	s.place, _ = PlaceOf(o.Dir)
	s.spawn = newSpawner()
	s.isolate(o.Logger)
	return s, nil
}

// Close ends what the runner needs to start commands.
func (s *Shell) Close() {
	s.spawn.close()
	s.cgroups.close()
}

// Run runs the command to its end, or stops its group when ctx ends.
func (s *Shell) Run(ctx context.Context, a job.Assignment) job.Result {
	var p job.ShellPayload
	if err := job.DecodeStrict(a.Payload, &p); err != nil {
		return permanent("payload: %v", err)
	}
	if (p.Command == "") == (len(p.Argv) == 0) {
		return permanent("payload: a shell job needs a command or an argv")
	}
	return s.run(ctx, p, a, nil)
}

// run carries out a command; stdin is nil for none, and for a command that a job chose.
func (s *Shell) run(ctx context.Context, p job.ShellPayload, a job.Assignment, stdin []byte) job.Result {
	out := newTailBuffer(liveBytes)
	worker.Show(ctx, out.since)
	mark := newMark()
	namespace := cmp.Or(a.Namespace, job.DefaultNamespace)
	who, err := s.identity(p, namespace)
	if err != nil {
		return failure("%v", err)
	}
	done, err := s.admit(namespace, who, len(a.Secrets) > 0, stdin == nil)
	if err != nil {
		return failure("%v", err)
	}
	defer done()
	// The directory of a command that the worker was started with is the operator's choice, as the command is.
	l := launch{Stay: stdin != nil && p.Dir != ""}
	if l.Limits, err = s.limitsFor(p); err != nil {
		return failure("%v", err)
	}
	cmd, err := s.command(p, a, mark, who)
	if err != nil {
		return failure("%v", err)
	}
	// What is kept and what is watched is masked on its way there, before any of it is dropped.
	masked := mask.New(a.Secrets...).Writer(out)
	cmd.Stdout, cmd.Stderr = masked, masked // the same writer: one pipe, so the order of writes is kept
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}

	note, err := s.note(a, mark)
	if err != nil {
		return failure("%v", err)
	}
	defer note.remove()
	group, begun, err := s.prepare(cmd, l, who, a)
	if err != nil {
		return failure("%v", err)
	}
	defer group.close()
	if ctx.Err() != nil {
		_, _ = begun.end()
		return failure("not started")
	}
	if err := s.spawn.start(cmd); err != nil {
		_, _ = begun.end()
		return failure("%v", err)
	}
	note.started(cmd.Process.Pid)
	err = s.wait(ctx, cmd, begun.signalable())
	_ = masked.Flush() //nolint:errcheck // memory takes everything
	status, failed := begun.end()
	if failed != nil {
		return failure("%v", failed)
	}
	if status != nil && status.Signaled() {
		err = killedBy(status.Signal())
	}
	if err != nil && group != nil && group.killed() {
		err = fmt.Errorf("%w: it used more memory than allowed (%s)", err, l.Limits.Memory)
	}
	r := job.Result{Outcome: job.OutcomeSucceeded, Output: job.Tail(string(out.Bytes()), job.MaxOutputBytes)}
	if err != nil {
		r.Outcome, r.Error = job.OutcomeFailed, err.Error()
		r.Permanent = cmd.ProcessState.ExitCode() == exitPermanent
	}
	return r
}

// command is the process of an attempt. Nothing of the node's environment but HOME reaches it: that is where secrets
// are. If it runs as another user, nothing that the job names is looked up here: this process may see more than the
// user may, and errors would tell what is where. The process that has become the user does it; see launch.
func (s *Shell) command(p job.ShellPayload, a job.Assignment, mark string, who *user.User) (*exec.Cmd, error) {
	env := []string{envPath + defaultPath}
	if who != nil {
		env = append(env, "USER="+who.Username, "LOGNAME="+who.Username)
	} else {
		env = append(env, envHome+s.home)
	}
	path := defaultPath
	for _, k := range sortedKeys(p.Env) {
		env = append(env, k+"="+p.Env[k])
		if k == "PATH" {
			path = p.Env[k]
		}
	}
	env = append(env,
		"CARILLON_JOB="+a.Run.Job.String(), "CARILLON_JOB_NAME="+a.JobName, envRun+a.Run.String(),
		"CARILLON_SCHEDULED_AT="+scheduledAt(a), "CARILLON_ATTEMPT="+strconv.Itoa(a.Attempt),
		envFence+strconv.FormatUint(a.Fence, 10), "CARILLON_IDEMPOTENCY_KEY="+a.Key, envMark+mark)
	if t := traceparent(a.Traceparent); t != "" {
		env = append(env, "TRACEPARENT="+t)
	}
	argv := p.Argv
	if len(argv) == 0 {
		argv = []string{"/bin/sh", "-c", p.Command}
	}
	// A session of its own has no controlling terminal, also if the worker has one: a program that reads a password
	// from there would be stopped by SIGTTIN until the job's timeout, or read what somebody types for the worker.
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: env, Dir: p.Dir, WaitDelay: pipeDelay,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if who != nil {
		return cmd, nil
	}
	var err error
	if cmd.Path, err = lookPath(argv[0], path); err != nil {
		return nil, err
	}
	cmd.Dir = cmp.Or(cmd.Dir, s.home)
	if _, err := os.Stat(cmd.Dir); err != nil {
		return nil, err // else the error would name the program
	}
	return cmd, nil
}

// prepare arranges for what is to happen between the fork and the command.
func (s *Shell) prepare(cmd *exec.Cmd, l launch, who *user.User,
	a job.Assignment) (group *runCgroup, begun *beginning, err error) {
	if l.Limits == (job.ShellLimits{}) && who == nil && s.cgroups == nil {
		return nil, nil, nil
	}
	uid := strconv.Itoa(os.Geteuid())
	if who != nil {
		uid = who.Uid
		if err := l.become(who); err != nil {
			return nil, nil, err
		}
		l.Isolate = s.isolated && l.UID != 0
		if !l.Stay {
			l.Dir, cmd.Dir = cmd.Dir, "/"
		}
	}
	if s.cgroups != nil {
		if group, err = s.cgroups.open(attemptName(&a), l.Limits); err != nil {
			return nil, nil, err
		}
		l.Cgroups, l.Held = group.procs(), true
	} else if l.Limits.Processes > 0 && !canBoundProcesses(uid) {
		return nil, nil, errors.New("payload: limits.processes: only a cgroup can limit the processes of root, and " +
			"this worker has none")
	}
	if begun, err = confine(cmd, l); err != nil {
		group.close()
		return nil, nil, err
	}
	return group, begun, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lookPath finds a program on the job's PATH, with the rights of this process; exec.LookPath would use the node's PATH.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", fmt.Errorf("%q was not found on PATH", name)
}

// closeListedOnExec marks the descriptors that a directory lists, without the standard streams.
func closeListedOnExec(dir string) error {
	open, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("keep open files from commands: %w", err)
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// isolate finds out whether the processes of an attempt can be hidden from others, and the others from them. Root is
// left alone: it would see them anyway, and has jobs that are about the machine.
func (s *Shell) isolate(log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if len(s.users.list()) == 0 {
		log.Info("commands run as this process and see the processes of the machine")
		return
	}
	if err := s.spawn.canIsolate(); err != nil {
		log.Warn("commands that run as one user see each other's processes: they get no PID namespace", "error", err)
		return
	}
	s.isolated = true
	log.Info("each command that runs as another user has a PID namespace and sees its own processes only")
}

// wait waits for the command, stops its group when ctx ends, and ends what is left of the group afterwards. Before it
// can be signaled, only SIGKILL would reach it.
func (s *Shell) wait(ctx context.Context, cmd *exec.Cmd, signalable <-chan struct{}) error {
	pid := cmd.Process.Pid
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(pid)
	}()
	select {
	case <-exited:
	case <-ctx.Done():
		grace, over := context.WithTimeout(context.Background(), s.o.Grace)
		defer over()
		select {
		case <-signalable:
		case <-exited:
		case <-grace.Done():
		}
		signalGroup(pid, unix.SIGTERM)
		select {
		case <-exited:
		case <-grace.Done():
			signalGroup(pid, unix.SIGKILL)
			<-exited
		}
	}
	// The command is dead but not reaped: its pid, and with it the number of the group, cannot be anybody else's yet.
	signalGroup(pid, unix.SIGKILL)
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case errors.As(err, &exit):
		return exitError(exit.ProcessState)
	}
	return err
}

// signalGroup signals a group, and its leader should it have moved to another.
func signalGroup(pid int, sig unix.Signal) {
	_ = unix.Kill(-pid, sig)
	_ = unix.Kill(pid, sig)
}

func exitError(st *os.ProcessState) error {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return killedBy(ws.Signal())
	}
	return fmt.Errorf("exit status %d", st.ExitCode())
}

func killedBy(sig syscall.Signal) error {
	name := unix.SignalName(sig)
	if name == "" {
		name = "signal " + strconv.Itoa(int(sig))
	}
	return errors.New("killed by " + name)
}

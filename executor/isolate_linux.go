package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the first process of a PID namespace says: that it passes signals on, and how its command ended.
const (
	initReady = '+'
	initEnded = "\x00"
)

// probeName is the command of a launch that only tries whether commands can be isolated.
const probeName = "carillon-probe"

// becomeInit is the first process of a PID namespace, in a mount namespace of its own. It starts the command, passes
// SIGTERM on to the command's group, which the kernel would keep from a first process, and reaps what the command
// leaves. When it ends, the kernel ends all others of the namespace. It keeps its rights, so that the command can
// neither trace nor signal it; the one that becomes the command is another.
func becomeInit(l launch, argv []string, says *os.File) error {
	if os.Getpid() != 1 {
		return errors.New("not the first process of its PID namespace")
	}
	// What is mounted here stays here; what the machine mounts later is seen.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if argv[0] == probeName {
		os.Exit(0)
	}
	l.Isolate = false
	spec, err := json.Marshal(l)
	if err != nil {
		return err
	}
	// Caught and not ignored: what is ignored would be so in the command, too.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	// Before there is another that could say why it failed.
	if _, err := says.Write([]byte{initReady}); err != nil {
		return err
	}
	command, err := syscall.ForkExec("/proc/self/exe", append([]string{confineName, string(spec)}, argv...),
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, says.Fd()},
			Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return err
	}
	for fd := range 3 {
		_ = unix.Close(fd) // they are the command's: who reads its output sees when it closes that
	}
	go func() {
		<-signals // the node sends it to the group and to this process: two, for one
		signalGroup(command, unix.SIGTERM)
	}()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case pid != command:
			continue
		}
		fmt.Fprintf(says, "%s%d", initEnded, uint32(ws))
		if ws.Signaled() {
			os.Exit(128 + int(ws.Signal()))
		}
		os.Exit(ws.ExitStatus())
	}
}

// canIsolate says why commands cannot have PID namespaces of their own; nil: they can.
func (s *spawner) canIsolate() error {
	if err := lacks(unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var says bytes.Buffer
	probe := &exec.Cmd{Path: self, Args: []string{confineName, `{"isolate":true}`, probeName}, Stderr: &says,
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	probe.ExtraFiles = []*os.File{w} // confineFD
	err = s.start(probe)
	w.Close()
	if err != nil {
		return err
	}
	if err := probe.Wait(); err != nil {
		text := make([]byte, 256)
		n, _ := r.Read(text)
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text[:n])+" "+says.String()))
	}
	return nil
}

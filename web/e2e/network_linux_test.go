//go:build carillon_browser

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ownNetwork is set in the process that has a network of its own.
const ownNetwork = "CARILLON_E2E_NETWORK"

// inOwnNetwork runs this binary again in a network namespace that has a loopback and nothing else, and ends with it.
// Chromium breaks off what it loads (ERR_NETWORK_CHANGED) when an interface comes or goes on its machine, as other tests
// and containers have it. It returns where it is in one already, and where none can be had.
func inOwnNetwork() {
	if os.Getenv(ownNetwork) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "the loopback of the tests' own network:", err)
			os.Exit(1)
		}
		return
	}
	// The binary is built by the tests, where modules cannot be fetched any more.
	if err := exec.Command("go", "list", "-deps", "github.com/carillon-scheduler/carillon").Run(); err != nil {
		fmt.Fprintln(os.Stderr, "go list:", err)
	}
	runtime.LockOSThread() // whose end is that of the child: Pdeathsig
	uid, gid := os.Getuid(), os.Getgid()
	var err error
	for _, attr := range []*syscall.SysProcAttr{
		{Cloneflags: unix.CLONE_NEWNET},
		{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUSER, AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}},
	} {
		attr.Pdeathsig = syscall.SIGKILL
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
		cmd.Env = append(os.Environ(), ownNetwork+"=1")
		if err = cmd.Start(); err == nil {
			err = cmd.Wait()
			if ended := new(exec.ExitError); err == nil || errors.As(err, &ended) {
				os.Exit(max(cmd.ProcessState.ExitCode(), -cmd.ProcessState.ExitCode())) // -1: by a signal
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	runtime.UnlockOSThread()
	fmt.Fprintf(os.Stderr, "the browser shares the network of this machine (%v): "+
		"what it loads is broken off when an interface comes or goes\n", err)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// Nothing that happens to the network of the machine reaches the browser.
func TestOwnNetwork(t *testing.T) {
	if os.Getenv(ownNetwork) == "" {
		t.Skip("a network of its own is not to be had here")
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if up := i.Flags&net.FlagUp != 0; up != (i.Name == "lo") {
			t.Errorf("%s is up: %v", i.Name, up)
		}
	}
}

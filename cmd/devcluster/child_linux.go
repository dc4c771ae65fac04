package devcluster

import (
	"runtime"
	"syscall"
)

// childAttr puts a node into a process group of its own and makes it die with us, however we die: three forgotten nodes
// would keep their ports.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// onThread runs fn on a thread that lives exactly as long: Linux sends the death signal when the thread that started a
// process ends.
func onThread(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fn()
}

//go:build !linux

package devcluster

import "syscall"

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func onThread(fn func()) { fn() }

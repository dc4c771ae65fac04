//go:build !linux

package cmd

import "syscall"

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func onThread(fn func()) { fn() }

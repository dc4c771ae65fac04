package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// usage is what a process has used so far.
type usage struct {
	cpu        float64 // seconds
	written    uint64  // bytes sent to the disk
	anon, file uint64  // resident: its own memory, and pages of mapped files
	peak       uint64
	wakeups    uint64 // how often its threads slept and were woken
}

const clockTicks = 100 // USER_HZ is 100 wherever Go runs

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) > 12 {
		for _, f := range fields[11:13] {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return u, err
			}
			u.cpu += n / clockTicks
		}
	}
	u.written, _ = proc(pid, "io", "write_bytes:") // needs a right that we may not have
	const kib = 1 << 10
	for key, p := range map[string]*uint64{"RssAnon:": &u.anon, "RssFile:": &u.file, "VmHWM:": &u.peak} {
		if *p, err = proc(pid, "status", key); err != nil {
			return u, err
		}
		*p *= kib
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		n, _ := proc(pid, "task/"+t.Name()+"/status", "voluntary_ctxt_switches:") // a thread may have ended meanwhile
		u.wakeups += n
	}
	return u, err
}

func proc(pid int, file, key string) (uint64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), key); ok {
			return strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/%d/%s has no %s", pid, file, key)
}

package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/service"
	"github.com/carillon-scheduler/carillon/store"
)

// startHeld is start for a node whose cluster is on hold.
func startHeld(t *testing.T, dir string) *testNode {
	t.Helper()
	n, err := Open(testConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tn := &testNode{Node: n, t: t, cancel: cancel, done: make(chan error, 1), client: &http.Client{}}
	go func() { tn.done <- n.Run(ctx) }()
	t.Cleanup(tn.kill)
	tn.eventually("it works", func() bool { return n.Ready() == nil })
	return tn
}

func (n *testNode) backup() []byte {
	n.t.Helper()
	a := n.call("GET", "/api/v1/backup", nil)
	if a.status != http.StatusOK {
		n.t.Fatalf("%d %s", a.status, a.body)
	}
	return a.body
}

func TestBackupOfEachNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	tg := newTarget(t)
	c.leader().create(tg.spec("kept", "@every 1s"))
	c.fires("kept")
	for _, m := range c.members {
		a := m.call("GET", "/api/v1/backup", nil)
		b, err := datadir.CopyBackup(io.Discard, bytes.NewReader(a.body))
		info := m.group.store.Info()
		if err != nil || b.Jobs != 1 || b.ClusterID != info.ClusterID || b.At == 0 {
			t.Errorf("%s: %+v %v", m.id(), b, err)
		}
		h := a.header
		if h.Get("Carillon-Cluster") != b.ClusterID || h.Get("Carillon-Index") != strconv.FormatUint(b.Index, 10) ||
			h.Get("Carillon-Stale-Ms") == "" ||
			h.Get("Content-Length") != strconv.Itoa(len(a.body)) || h.Get("Content-Type") != wire.MediaBackup {
			t.Errorf("%s: %v", m.id(), h)
		}
	}
	// Without a majority too, and it says how old it is.
	m := c.members[0]
	for _, x := range c.members[1:] {
		x.link.crash()
	}
	m.eventually("it knows that there is no leader", func() bool { return m.service.Ready() != nil })
	time.Sleep(50 * time.Millisecond)
	a := m.call("GET", "/api/v1/backup", nil)
	if _, err := datadir.CopyBackup(io.Discard, bytes.NewReader(a.body)); err != nil ||
		a.header.Get("Carillon-Stale-Ms") == "0" {
		t.Errorf("%v %v", err, a.header)
	}
}

// Copies are bounded, have no name, and are gone when they are closed; the node works on meanwhile.
func TestBackupCopies(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	n := start(t, t.TempDir(), func(cfg *Config) {
		cfg.Machine.CopySpace = func(path string) (free, total uint64, err error) {
			if full.Load() {
				return 64 << 20, 1 << 30, nil
			}
			return disk.Statfs(path)
		}
	})
	tg := newTarget(t)
	var held []io.ReadCloser
	for range service.MaxCopies {
		_, rc, err := n.service.Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, rc)
	}
	if a := n.call("GET", "/api/v1/backup", nil); a.status != http.StatusServiceUnavailable ||
		a.problem().Code != job.CodeUnavailable || a.problem().Remedy == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	names, err := filepath.Glob(filepath.Join(n.dir.File(datadir.SnapshotsDir), "copy*"))
	if err != nil || len(names) > 0 {
		t.Errorf("a crash would leave %v", names)
	}
	for i := range 50 {
		n.create(tg.spec(fmt.Sprint("meanwhile", i), "@manual"))
	}
	for _, rc := range held {
		if b, err := datadir.CopyBackup(io.Discard, rc); err != nil || b.Jobs != 0 {
			t.Errorf("%+v %v", b, err)
		}
	}
	held[0].Close()
	held[0].Close() // twice frees once
	n.backup()
	var rc io.ReadCloser
	n.eventually("the copy that was sent is freed", func() bool {
		_, rc, err = n.service.Backup(t.Context())
		return err == nil
	})
	if _, _, err := n.service.Backup(t.Context()); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("%v", err)
	}
	rc.Close()
	held[1].Close()

	full.Store(true)
	if a := n.call("GET", "/api/v1/backup", nil); a.status != http.StatusInsufficientStorage ||
		a.problem().Code != job.CodeStorageFull {
		t.Errorf("%d %s", a.status, a.body)
	}
	full.Store(false)
	n.backup()
}

// A backup that was cut, changed or lengthened anywhere is not taken for whole.
func TestCopyBackupVerifies(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	good := n.backup()
	n.stop()
	var out bytes.Buffer
	if _, err := datadir.CopyBackup(&out, bytes.NewReader(good)); err != nil || !bytes.Equal(out.Bytes(), good) {
		t.Fatalf("%v", err)
	}
	for _, bad := range damagedBackups(good) {
		if _, err := datadir.CopyBackup(io.Discard, bytes.NewReader(bad.data)); err == nil {
			t.Errorf("%s was taken for whole", bad.name)
		}
	}
}

// No byte of a backup can be another one unnoticed: its header has a checksum as its state has.
func TestEveryByteOfABackupCounts(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	data := n.backup()
	n.stop()
	head := 16 + int(binary.BigEndian.Uint32(data[8:])) // magic, length and checksum, and its JSON
	places := make([]int, 0, head+100)
	for at := range head {
		places = append(places, at)
	}
	for at := head; at < len(data); at += (len(data) - head) / 100 {
		places = append(places, at)
	}
	c := restoreConfig(t, nil)
	for i, at := range places {
		for _, bit := range []byte{1 << (i % 8), 'a' ^ 'A'} { // keys of JSON are read in capitals, too
			data[at] ^= bit
			_, copied := datadir.CopyBackup(io.Discard, bytes.NewReader(data))
			c.Backup = bytes.NewReader(data)
			if _, err := datadir.Restore(c); copied == nil || err == nil || !strings.Contains(err.Error(), "x.bak") ||
				!strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "not complete") {
				t.Fatalf("byte %d with %#x flipped: copied: %v; restored: %v", at, bit, copied, err)
			}
			data[at] ^= bit
		}
	}
}

type damagedBackup struct {
	name string
	data []byte
}

func damagedBackups(good []byte) (all []damagedBackup) {
	for _, n := range []int{0, 5, 11, 12, 100, len(good) / 2, len(good) - 1} {
		all = append(all, damagedBackup{fmt.Sprint("cut after ", n), good[:n]})
	}
	for _, at := range []int{0, 9, len(good) / 3, len(good) - 1} {
		flipped := bytes.Clone(good)
		flipped[at] ^= 4
		all = append(all, damagedBackup{fmt.Sprint("a flipped bit at ", at), flipped})
	}
	return append(all, damagedBackup{"lengthened", append(bytes.Clone(good), 0)},
		damagedBackup{"a text", []byte("#!/bin/sh\necho this is no backup at all\n")})
}

func restoreConfig(t *testing.T, data []byte) datadir.RestoreConfig {
	return datadir.RestoreConfig{Backup: bytes.NewReader(data), Name: "x.bak",
		DataDir: filepath.Join(t.TempDir(),
			"data"), NodeID: "n1", Advertise: "127.0.0.1:9", Version: "test", Now: time.Now()}
}

func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	good := n.backup()
	n.stop()
	header := func(change func(*fsm.Header)) []byte {
		r := bytes.NewReader(good)
		h, err := fsm.ReadHeader(r)
		if err != nil {
			t.Fatal(err)
		}
		change(&h)
		rest, _ := io.ReadAll(r)
		return append(h.Encode(), rest...)
	}
	type refusal struct {
		name   string
		change func(*datadir.RestoreConfig)
		want   string
	}
	with := func(data []byte) func(*datadir.RestoreConfig) {
		return func(c *datadir.RestoreConfig) { c.Backup = bytes.NewReader(data) }
	}
	tests := []refusal{
		{"newer format", with(header(func(h *fsm.Header) { h.Format = store.Format + 1 })), "or a newer one"},
		{"newer level", with(header(func(h *fsm.Header) { h.Level = fsm.Level + 1 })), "or a newer one"},
		{"another header", with(header(func(h *fsm.Header) { h.Index++ })), "get another copy"},
		{"no node", func(c *datadir.RestoreConfig) { c.NodeID = "" }, "--node-id"},
		{"bad node", func(c *datadir.RestoreConfig) { c.NodeID = "a/b" }, "node id"},
		{"bad address", func(c *datadir.RestoreConfig) { c.Advertise = "here" }, "--advertise"},
		{"no directory", func(c *datadir.RestoreConfig) { c.DataDir = "" }, "--data-dir"},
		{"no epoch left", func(c *datadir.RestoreConfig) { c.Epoch = 1 << (fsm.FenceBits - datadir.EpochShift) },
			"highest possible"},
		{"a directory that is full", func(c *datadir.RestoreConfig) {
			if err := os.MkdirAll(filepath.Join(c.DataDir, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "choose another --data-dir"},
		{"a file", func(c *datadir.RestoreConfig) {
			if err := os.WriteFile(c.DataDir, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "--data-dir"},
		{"a node's directory", func(c *datadir.RestoreConfig) { c.DataDir = n.cfg.DataDir }, "is not empty"},
	}
	for _, bad := range damagedBackups(good) {
		tests = append(tests, refusal{bad.name, with(bad.data), "x.bak"})
	}
	for _, tt := range tests {
		c := restoreConfig(t, good)
		tt.change(&c)
		var was map[string]string
		if fi, err := os.Stat(c.DataDir); err == nil && fi.IsDir() {
			was = contents(t, c.DataDir)
		}
		_, err := datadir.Restore(c)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if was == nil {
			if fi, err := os.Stat(c.DataDir); c.DataDir != "" && err == nil && fi.IsDir() {
				t.Errorf("%s left %s", tt.name, c.DataDir)
			}
		} else if is := contents(t, c.DataDir); len(is) != len(was) {
			t.Errorf("%s changed the directory: %d files, before %d", tt.name, len(is), len(was))
		}
	}
	// An empty directory is as good as none, and stays when it was refused.
	c := restoreConfig(t, good[:len(good)-1])
	if err := os.Mkdir(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Restore(c); err == nil {
		t.Error("half a backup was restored")
	}
	if len(contents(t, c.DataDir)) != 0 {
		t.Error("something was left")
	}
	c.Backup = bytes.NewReader(good)
	if _, err := datadir.Restore(c); err != nil {
		t.Error(err)
	}
}

// A restore that is cut off anywhere leaves a directory that nothing opens, and that the same restore mends.
func TestRestoreCutOffAnywhere(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(map[string]any{"name": "kept", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
	good := n.backup()
	n.stop()
	for _, at := range []string{"begun", "state written", "state changed", "log made", "snapshot made"} {
		c := restoreConfig(t, good)
		c.Step = func(step string) error {
			if step == at {
				return faultpoint.ErrCutOff
			}
			return nil
		}
		if _, err := datadir.Restore(c); !errors.Is(err, faultpoint.ErrCutOff) {
			t.Fatalf("%s: %v", at, err)
		}
		_, open := Open(testConfig(t, c.DataDir))
		_, check := datadir.Check(c.DataDir)
		_, recover := datadir.Recover(c.DataDir, map[string]string{"n1": "h:1"}, quiet)
		_, compact := datadir.Compact(c.DataDir, nil)
		for what, err := range map[string]error{"open": open, "check": check, "recover": recover, "compact": compact} {
			if err == nil || !strings.Contains(err.Error(), "carillon restore` again") {
				t.Errorf("cut off after %s, %s: %v", at, what, err)
			}
		}
		c.Backup, c.Step = bytes.NewReader(good), nil
		r, err := datadir.Restore(c)
		if err != nil || r.Epoch != 1 {
			t.Fatalf("again after %s: %+v %v", at, r, err)
		}
		if res, err := datadir.Check(c.DataDir); err != nil || len(res.Problems) > 0 {
			t.Errorf("after %s: %+v %v", at, res, err)
		}
	}
}

func TestRestoredClusterIsAnother(t *testing.T) {
	realTime(t)
	t.Parallel()
	tg := newTarget(t)
	c := startJoined(t, 2)
	old := c.leader()
	kept := old.create(tg.spec("kept", "@every 1s"))
	c.fires("kept")
	good := old.backup()

	cfg := restoreConfig(t, good)
	r, err := datadir.Restore(cfg)
	if err != nil || r.Jobs != 1 || r.FromCluster != old.group.store.Info().ClusterID || r.ClusterID == r.FromCluster || r.Epoch != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if res, err := datadir.Check(cfg.DataDir); err != nil || len(res.Problems) > 0 {
		t.Fatalf("%+v %v", res, err)
	}
	n := startHeld(t, cfg.DataDir)
	info := n.group.store.Info()
	if !info.Hold.On || info.ClusterID != r.ClusterID || info.Level != fsm.Level || n.group.store.Counters().Fence < 1<<datadir.EpochShift {
		t.Errorf("%+v", info)
	}
	if n.dir.Instance == old.dir.Instance {
		t.Error("it is the same instance")
	}
	// Neither talks to the other, and no directory of the one can join the other.
	for _, err := range []error{n.members.Check(old.members.Hello()), old.members.Check(n.members.Hello())} {
		if err == nil || !strings.Contains(err.Error(), "do not talk to each other") {
			t.Errorf("%v", err)
		}
	}
	if _, err := n.members.Join(t.Context(), old.members.Request()); job.CodeOf(err) != job.CodeState {
		t.Errorf("%v", err)
	}
	if j := n.get("kept"); j.ID != kept.ID {
		t.Errorf("%+v", j)
	}
	n.eventually("it says why nothing runs", func() bool { return strings.Contains(n.get("kept").WaitReason, "on hold") })
	for _, path := range []string{"/jobs/kept:run", "/dead:redrive?all=true"} {
		a := n.call("POST", "/api/v1"+path, nil)
		if a.status != http.StatusConflict && !strings.Contains(string(a.body), `"count":0`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := n.call("GET", "/readyz", nil); a.status != http.StatusServiceUnavailable || !strings.Contains(a.problem().Remedy, "carillon cluster release") {
		t.Errorf("%d %s", a.status, a.body)
	}

	// A copy of a cluster on hold is on hold, and of an epoch of its own.
	again := restoreConfig(t, n.backup())
	again.Epoch = 7
	if r, err := datadir.Restore(again); err != nil || r.Epoch != 7 {
		t.Errorf("%+v %v", r, err)
	}
	// So it is after a restart and after a recovery.
	n.stop()
	if _, err := datadir.Recover(cfg.DataDir, map[string]string{"n1": "127.0.0.1:9"}, quiet); err != nil {
		t.Fatal(err)
	}
	n = startHeld(t, cfg.DataDir)
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Hold == nil || s.Hold.FromCluster != r.FromCluster || s.Ready || !strings.Contains(s.NotReady, "release") {
		t.Errorf("%+v", s)
	}
	for i, want := range []bool{true, false} {
		if r := ok[wire.ReleaseResult](n, "POST", "/api/v1/cluster:release", nil); r.Released != want || r.Releasing || r.At == 0 {
			t.Errorf("release %d: %+v", i, r)
		}
	}
	n.eventually("it is ready", func() bool { return n.service.Ready() == nil })
	released := n.group.store.Info().Released
	n.eventually("it fires", func() bool {
		for _, r := range n.runs("kept") {
			if r.Fence > 1<<datadir.EpochShift && r.Status == job.RunSucceeded {
				if int64(r.ScheduledAt) <= released {
					t.Errorf("%+v, released at %d", r, released)
				}
				return true
			}
		}
		return false
	})
	missed := int64(0)
	for _, r := range n.runs("kept") {
		if r.Reason == job.ReasonRestored && r.Status == job.RunMissed {
			missed += r.Count
		}
	}
	if missed == 0 {
		t.Error("nothing was recorded as missed")
	}
}

// Compaction gives room back, changes nothing, and may be cut off anywhere.
func TestCompactDir(t *testing.T) {
	realTime(t)
	t.Parallel()
	home := t.TempDir()
	n := start(t, home)
	if _, err := datadir.Compact(home, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
	if _, err := datadir.Compact(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("%v", err)
	}
	big := strings.Repeat("x", 50_000)
	queue := func(name, data string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q", "data": data}}
	}
	for i := range 60 {
		n.create(queue(fmt.Sprint("big", i), big))
	}
	n.create(queue("kept", "small"))
	for i := range 60 {
		ok[any](n, "DELETE", fmt.Sprint("/api/v1/jobs/big", i), nil)
	}
	n.stop()
	digest := func(dir string) (string, [sha256.Size]byte) {
		t.Helper()
		st, err := store.Open(filepath.Join(dir, datadir.StateFile), store.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		d, err := st.Digest()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, datadir.LogFile))
		if err != nil {
			t.Fatal(err)
		}
		return d, sha256.Sum256(raw)
	}
	want, _ := digest(home)
	for _, at := range []string{"written " + datadir.StateFile, "renamed " + datadir.StateFile, "written " + datadir.LogFile, "renamed " + datadir.LogFile} {
		dir := t.TempDir()
		for path, data := range contents(t, home) {
			rel, _ := filepath.Rel(home, path)
			to := filepath.Join(dir, rel)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte(data), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		seen := false
		_, err := datadir.Compact(dir, func(step string) error {
			if step == at {
				seen = true
				return faultpoint.ErrCutOff
			}
			return nil
		})
		if at == "renamed "+datadir.LogFile && !seen { // there was nothing to gain
			continue
		}
		if !errors.Is(err, faultpoint.ErrCutOff) {
			t.Fatalf("%s: %v", at, err)
		}
		if d, _ := digest(dir); d != want {
			t.Errorf("cut off after %s the state is another", at)
		}
		if res, err := datadir.Check(dir); err != nil || len(res.Problems) > 0 {
			t.Errorf("after %s: %+v %v", at, res, err)
		}
		m := start(t, dir)
		m.get("kept")
		m.stop()
		if left, _ := filepath.Glob(filepath.Join(dir, "*"+datadir.CompactExt)); len(left) > 0 {
			t.Errorf("after %s: %v", at, left)
		}
	}
	c, err := datadir.Compact(home, nil)
	if err != nil || len(c.Files) != 2 || c.NodeID != "n1" || c.Files[0].Kept || c.Files[0].After >= c.Files[0].Before {
		t.Fatalf("%+v %v", c, err)
	}
	if d, _ := digest(home); d != want {
		t.Error("the state is another")
	}
	if c, err := datadir.Compact(home, nil); err != nil || c.Files[0].After > c.Files[0].Before {
		t.Errorf("once more: %+v %v", c, err)
	}
	n = start(t, home)
	n.get("kept")
	n.stop()

	// A damaged file is left as it is.
	path := filepath.Join(home, datadir.StateFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Its first pages, without those that the newest of them lead to: what is behind the middle may all be free.
	if err := os.WriteFile(path, data[:4*os.Getpagesize()], 0o600); err != nil {
		t.Fatal(err)
	}
	was := contents(t, home)
	if _, err := datadir.Compact(home, nil); err == nil {
		t.Error("a part of a file was compacted")
	}
	if is := contents(t, home); len(is) != len(was) || is[path] != was[path] {
		t.Error("it was changed")
	}
}

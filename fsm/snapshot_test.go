package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

var testConf = raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1:7400"}, {Suffrage: raft.Nonvoter, ID: "n2", Address: "n2:7400"}}}

// takeSnapshot does what raft does when it takes one: Persist leaves the sink empty.
func takeSnapshot(t testing.TB, s *snapshots.Store, index, term uint64) *raft.SnapshotMeta {
	t.Helper()
	sink, err := s.Create(1, index, term, testConf, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := (stateFile{}).Persist(sink); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].ID != sink.ID() {
		t.Fatalf("%v %v", list, err)
	}
	return list[0]
}

// readStream is the state that goes with a snapshot, read as raft reads it: exactly Size bytes.
func readStream(t testing.TB, s *snapshots.Store, id string) []byte {
	t.Helper()
	meta, rc, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	data := make([]byte, meta.Size)
	if _, err := io.ReadFull(rc, data); err != nil {
		t.Fatalf("the stream is shorter than it says: %v", err)
	}
	if n, err := rc.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("the stream is longer than it says: %d %v", n, err)
	}
	return data
}

// receive does what installSnapshot does up to, and without, the restore.
func receive(t testing.TB, from, to *snapshots.Store, meta *raft.SnapshotMeta) {
	t.Helper()
	if err := writeSink(to, meta, readStream(t, from, meta.ID)); err != nil {
		t.Fatal(err)
	}
}

func writeSink(to *snapshots.Store, meta *raft.SnapshotMeta, data []byte) error {
	sink, err := to.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), 10_000)
		if _, err := sink.Write(data[:n]); err != nil {
			sink.Cancel()
			return err
		}
		data = data[n:]
	}
	return sink.Close()
}

func files(t testing.TB, s *snapshots.Store) string {
	t.Helper()
	all, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range all {
		names = append(names, n.Name())
	}
	return strings.Join(names, " ")
}

func populated(t testing.TB) *world {
	w := newWorld(t)
	for i := range int64(20) {
		id := w.create(T(10+i), nil)
		if i%2 == 0 {
			w.claim(id, T(100))
		}
	}
	return w
}

func TestASnapshotIsMetadataOnly(t *testing.T) {
	w := populated(t)
	s := newSnapshots(t, w)
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	takeSnapshot(t, s, 5, 1)
	meta := takeSnapshot(t, s, w.index, 1)
	if files(t, s) != snapshots.MetaFile {
		t.Fatalf("%s", files(t, s))
	}
	if meta.Index != w.index || meta.Term != 1 || meta.Version != 1 || len(meta.Configuration.Servers) != 2 || meta.Configuration.Servers[1] != testConf.Servers[1] || meta.ConfigurationIndex != 1 {
		t.Fatalf("%+v", meta)
	}
	// It is still there after a restart: synthesising it would let the log grow for ever.
	again, err := snapshots.New(s.Dir, w.st)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := again.List(); err != nil || len(list) != 1 || list[0].ID != meta.ID {
		t.Fatalf("%v %v", list, err)
	}
	if rc, err := again.Pending(); rc != nil || err != nil {
		t.Fatalf("%v %v", rc, err)
	}
	if _, _, err := s.Open("9-9"); err == nil {
		t.Fatal("a snapshot that is not there")
	}
	if _, err := s.Create(0, 1, 1, testConf, 1, nil); err == nil {
		t.Fatal("a version that raft no longer writes")
	}
}

// Raft opens a snapshot with every try to send it: a copy is made when it is begun, once, and where there is room.
func TestACopyIsMadeWhenItIsBegun(t *testing.T) {
	w := populated(t)
	s := newSnapshots(t, w)
	meta := takeSnapshot(t, s, w.index, 1)
	asked, room := 0, uint64(1<<40)
	s.Room = func() uint64 { asked++; return room }
	open := func() *snapshots.Later {
		t.Helper()
		m, rc, err := snapshots.Sent{Store: s}.Open(meta.ID)
		if err != nil || m.ID != meta.ID {
			t.Fatal(m, err)
		}
		t.Cleanup(func() {
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
		})
		return rc.(*snapshots.Later)
	}
	if l := open(); asked != 0 {
		t.Fatalf("%v was made", l)
	}
	l := open()
	size, err := l.Begin()
	if err != nil || size == 0 {
		t.Fatal(size, err)
	}
	data, err := io.ReadAll(l)
	if again, err2 := l.Begin(); err != nil || err2 != nil || int64(len(data)) != size || again != size || asked != 1 {
		t.Fatalf("%d of %d bytes, %d, %d copies, %v %v", len(data), size, again, asked, err, err2)
	}
	if h, err := ReadHeader(bytes.NewReader(data)); err != nil || h.Index != w.index {
		t.Fatalf("%+v %v", h, err)
	}
	if all, err := io.ReadAll(open()); err != nil || len(all) != len(data) { // raft may read what nobody began
		t.Fatal(len(all), err)
	}
	room = 1
	l = open()
	if _, err := l.Begin(); err == nil || !strings.Contains(err.Error(), "room for 1 B") {
		t.Fatal(err)
	}
	if _, err := l.Read(make([]byte, 1)); err == nil {
		t.Fatal("it can be read")
	}
}

func TestAReceivedSnapshotIsRestored(t *testing.T) {
	a, b := populated(t), newWorld(t)
	b.create(T(5), nil)
	install(t, a, b, a.index)
	if fullDigest(t, a) != fullDigest(t, b) {
		t.Fatal("the states differ")
	}
	b.check()
	// It goes on from there, and entries up to there are old.
	b.index = a.index
	b.create(T(50), nil)
	if r := b.f.Apply(&raft.Log{Index: a.index, Term: 1, Type: raft.LogCommand, Data: mustEncode(t, &Pause{})}); r != errReplayed {
		t.Fatalf("%v", r)
	}
	// The file is only needed until then.
	s := newSnapshots(t, b)
	if files(t, s) != snapshots.MetaFile {
		t.Fatalf("%s", files(t, s))
	}
	// What it would send on is its own state now, which is further.
	list, _ := s.List()
	h, err := ReadHeader(bytes.NewReader(readStream(t, s, list[0].ID)))
	if err != nil || h.Index != b.index {
		t.Fatalf("%+v %v", h, err)
	}
}

// A crash between sink.Close and Restore must not lose what raft believes to be there.
func TestPendingAfterACrashBeforeTheRestore(t *testing.T) {
	a, b := populated(t), newWorld(t)
	from, to := newSnapshots(t, a), newSnapshots(t, b)
	meta := takeSnapshot(t, from, a.index+3, 1) // no-ops and barriers follow the last command
	receive(t, from, to, meta)
	b.st.Close()
	b.open()
	to = newSnapshots(t, b)
	rc, err := to.Pending()
	if err != nil || rc == nil {
		t.Fatalf("it was forgotten: %v", err)
	}
	if err := b.f.Restore(rc); err != nil {
		t.Fatal(err)
	}
	if fullDigest(t, a) != fullDigest(t, b) {
		t.Fatal("the states differ")
	}
	if rc, err := to.Pending(); rc != nil || err != nil {
		t.Fatalf("it is restored: %v", err)
	}
	if i, term, err := to.State(); err != nil || i != a.index || term != 0 {
		t.Fatalf("%d %d %v", i, term, err)
	}
	// And once more from the beginning: nothing is pending now.
	b.st.Close()
	b.open()
	if to = newSnapshots(t, b); files(t, to) != snapshots.MetaFile {
		t.Fatalf("%s", files(t, to))
	}
}

// A leader sends its state as it is, which is past the index of its newest snapshot. Until the entries in between have come, the
// metadata is all that says so, whatever snapshots are taken meanwhile.
func TestAReceivedStateMayBePastItsSnapshot(t *testing.T) {
	a, b := populated(t), newWorld(t)
	install(t, a, b, a.index-5)
	s := newSnapshots(t, b)
	at := func(what string, index, term uint64) {
		t.Helper()
		if i, got, err := s.State(); err != nil || i != index || got != term {
			t.Fatalf("%s: %d %d %v, want %d %d", what, i, got, err, index, term)
		}
	}
	at("received", a.index, 1)
	takeSnapshot(t, s, a.index-3, 1)
	at("still behind it", a.index, 1)
	takeSnapshot(t, s, a.index, 1)
	at("the log has come to it", a.index, 0)
	b.index = a.index
	b.create(T(50), nil)
	takeSnapshot(t, s, b.index-1, 1)
	at("its own, and a log that has more", b.index, 0)
}

func TestAStateOlderThanItsSnapshotIsRefused(t *testing.T) {
	w := populated(t)
	takeSnapshot(t, newSnapshots(t, w), w.index, 1)
	w.st.Close()
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.open()
	if _, err := snapshots.New(filepath.Join(filepath.Dir(w.path), "snapshots"), w.st); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Fatalf("%v", err)
	}
}

// Whatever comes in that is not a whole snapshot leaves the old state as it was, and does not become the newest one.
func TestABadStreamLeavesTheOldStateWhole(t *testing.T) {
	a, b := populated(t), newWorld(t)
	b.create(T(5), nil)
	from, to := newSnapshots(t, a), newSnapshots(t, b)
	meta := takeSnapshot(t, from, a.index, 1)
	good := readStream(t, from, meta.ID)
	head := int(good[11]) + int(good[10])<<8 + 16 // magic, length, and the checksum behind it
	change := func(at int) []byte {
		bad := bytes.Clone(good)
		bad[at] ^= 0x40
		return bad
	}
	lie := func(edit func(*Header)) []byte {
		h, err := ReadHeader(bytes.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		edit(&h)
		return append(h.Encode(), good[head:]...)
	}
	before := fullDigest(t, b)
	for name, data := range map[string][]byte{
		"nothing": {}, "half a header": good[:8], "header only": good[:head], "cut in the header": good[:head-3],
		"cut off": good[:len(good)-1], "half": good[:len(good)/2], "too long": append(bytes.Clone(good), 0),
		"magic": change(0), "length": change(9), "header": change(20), "first page": change(head + 20), "last byte": change(len(good) - 1),
		"in the middle": change(head + (len(good)-head)/2), "garbage": bytes.Repeat([]byte("garbage!"), 5000),
		"newer format": lie(func(h *Header) { h.Format = store.Format + 1 }), "other index": lie(func(h *Header) { h.Index++ }), "other term": lie(func(h *Header) { h.Term++ }),
		"other group": lie(func(h *Header) { h.Group++ }),
	} {
		t.Run(name, func(t *testing.T) {
			if err := b.f.Restore(io.NopCloser(bytes.NewReader(data))); err == nil {
				t.Fatal("it was restored")
			}
			if fullDigest(t, b) != before || len(b.fatal) != 0 {
				t.Fatal("the old state is not what it was")
			}
			b.check()
			if _, err := os.Stat(restoreFile(b.path)); !errors.Is(err, os.ErrNotExist) {
				t.Fatal("it left its file behind")
			}
			if strings.HasPrefix(name, "other") || len(data) == 0 {
				return // only the state itself can tell
			}
			if err := writeSink(to, meta, data); err == nil {
				t.Fatal("the sink took it")
			}
			if list, err := to.List(); err != nil || len(list) != 0 || files(t, to) != "" {
				t.Fatalf("%v %v %s", list, err, files(t, to))
			}
		})
	}
	if err := b.f.Restore(io.NopCloser(&broken{good[:len(good)/2]})); err == nil {
		t.Fatal("a connection that broke")
	}
	if err := b.f.Restore(io.NopCloser(bytes.NewReader(good))); err != nil {
		t.Fatalf("the good one, after all those: %v", err)
	}
}

type broken struct{ b []byte }

func (r *broken) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, errors.New("connection reset")
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// A snapshot whose restore failed does not stand in the way of the next one.
func TestTheNextSnapshotReplacesOneThatWasNotRestored(t *testing.T) {
	a, b := populated(t), newWorld(t)
	from, to := newSnapshots(t, a), newSnapshots(t, b)
	receive(t, from, to, takeSnapshot(t, from, a.index, 1))
	if err := os.WriteFile(filepath.Join(to.Dir, "1-"+fmt.Sprint(a.index)+snapshots.ReceivedExt), []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.create(T(100), nil)
	meta := takeSnapshot(t, from, a.index, 1)
	receive(t, from, to, meta)
	if got := files(t, to); got != meta.ID+snapshots.ReceivedExt+" "+snapshots.MetaFile {
		t.Fatal(got)
	}
	_, rc, err := to.Open(meta.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.f.Restore(rc); err != nil {
		t.Fatal(err)
	}
}

// Raft may finish a snapshot of its own after it has installed a newer one.
func TestAnOlderSnapshotOfItsOwnDoesNotReplaceANewerOne(t *testing.T) {
	a, b := populated(t), newWorld(t)
	b.create(T(5), nil)
	to := newSnapshots(t, b)
	own, err := to.Create(1, b.index, 1, testConf, 1, nil) // begun before
	if err != nil {
		t.Fatal(err)
	}
	install(t, a, b, a.index)
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := to.List(); err != nil || list[0].Index != a.index {
		t.Fatalf("%+v %v", list[0], err)
	}
	// One that was received and could not be restored gives way, because the state is still the old one.
	c := newWorld(t)
	c.create(T(5), nil)
	from, to := newSnapshots(t, a), newSnapshots(t, c)
	receive(t, from, to, takeSnapshot(t, from, a.index, 1))
	if meta := takeSnapshot(t, to, c.index, 1); meta.Index != c.index || files(t, to) != snapshots.MetaFile {
		t.Fatalf("%+v %s", meta, files(t, to))
	}
}

// A user may put an older state back: what was received is what is restored, although the state is further on.
func TestAnOlderSnapshotCanBePutBack(t *testing.T) {
	w := populated(t)
	s := newSnapshots(t, w)
	old := readStream(t, s, takeSnapshot(t, s, w.index, 1).ID)
	want := fullDigest(t, w)
	w.create(T(999), nil)
	burned := &raft.SnapshotMeta{Version: 1, Index: w.index + 1, Term: 1}
	if err := writeSink(s, burned, old); err != nil {
		t.Fatal(err)
	}
	_, rc, err := s.Open(fmt.Sprintf("1-%d", burned.Index))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.f.Restore(rc); err != nil {
		t.Fatal(err)
	}
	if fullDigest(t, w) != want {
		t.Fatal("the newer state is still there")
	}
	w.index = burned.Index
	w.create(T(1000), nil) // later entries are not old
}

func TestLeftoversOfACrashAreRemoved(t *testing.T) {
	w := populated(t)
	s := newSnapshots(t, w)
	takeSnapshot(t, s, w.index, 1)
	for _, name := range []string{"copy-123.tmp", "7-7.snap.tmp", snapshots.MetaFile + ".tmp", "3-3.snap"} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(restoreFile(w.path), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	New(w.st, Options{})
	if _, err := os.Stat(restoreFile(w.path)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("half a restore is left over")
	}
	if s = newSnapshots(t, w); files(t, s) != snapshots.MetaFile {
		t.Fatalf("%s", files(t, s))
	}
	sink, err := s.Create(1, 99, 1, testConf, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	sink.Write([]byte("half"))
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if sink.Cancel() != nil || sink.Close() != nil || files(t, s) != snapshots.MetaFile {
		t.Fatalf("%s", files(t, s))
	}
	if err := os.WriteFile(filepath.Join(s.Dir, snapshots.MetaFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshots.New(s.Dir, w.st); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("%v", err)
	}
}

// Copies are of one moment each although commits, snapshots and other copies go on.
func TestCopiesAreConsistentWhileCommitsGoOn(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), overlap(job.OverlapAllow))
	s := newSnapshots(t, w)
	takeSnapshot(t, s, w.index, 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					if n > 0 {
						return
					}
				default:
				}
				list, err := s.List()
				if err != nil {
					t.Error(err)
					return
				}
				_, rc, err := s.Open(list[0].ID)
				if err != nil {
					if now, _ := s.List(); len(now) > 0 && now[0].ID != list[0].ID {
						continue // another snapshot came in between
					}
					t.Error(err)
					return
				}
				if err := verifyCopy(filepath.Join(t.TempDir(), fmt.Sprint(i, n)), rc); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range int64(150) {
		o := w.claim(id, T(60*(i+1)))
		w.complete(o, ResultSucceeded, 0)
		if i%20 == 0 {
			takeSnapshot(t, s, w.index, 1)
		}
	}
	close(stop)
	wg.Wait()
}

// verifyCopy opens what a stream holds and checks it.
func verifyCopy(path string, rc io.ReadCloser) error {
	defer rc.Close()
	h, err := ReadHeader(rc)
	if err != nil {
		return err
	}
	if err := h.WriteState(path, rc); err != nil {
		return err
	}
	problems, stats, err := store.CheckFile(path)
	if err != nil || len(problems) > 0 || stats.Counters.Index != h.Index {
		return fmt.Errorf("%v %q, at %d of %d", err, problems, stats.Counters.Index, h.Index)
	}
	return nil
}

// Readers of the old file finish undisturbed; a view that is open holds the swap up, a copy does not.
func TestRestoreOverOpenReaders(t *testing.T) {
	a, b := populated(t), newWorld(t)
	old := b.create(T(5), nil)
	from := newSnapshots(t, a)
	meta := takeSnapshot(t, from, a.index, 1)
	good := readStream(t, from, meta.ID)

	reset := make(chan bool, 1)
	stop := b.st.Listen(func(c *store.Changes) {
		if c.Reset {
			reset <- true
		}
	})
	defer stop()
	inView, restored := make(chan struct{}), make(chan error, 1)
	err := b.st.View(func(v *store.View) error {
		go func() {
			close(inView)
			restored <- b.f.Restore(io.NopCloser(bytes.NewReader(good)))
		}()
		<-inView
		for range 1000 {
			if _, _, ok, err := v.State(old); !ok || err != nil {
				t.Errorf("the view changed under its reader: %v", err)
			}
		}
		select {
		case <-reset:
			t.Error("the file was swapped under an open view")
		default:
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-restored; err != nil {
		t.Fatal(err)
	}
	<-reset
	if fullDigest(t, b) != fullDigest(t, a) {
		t.Fatal("the states differ")
	}
}

// What another node sends is looked at before it becomes the newest snapshot.
func TestSnapshotNotAccepted(t *testing.T) {
	st, err := store.Open(t.TempDir()+"/state.db", store.Options{NoSync: true, MmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	snaps, err := snapshots.New(t.TempDir(), st)
	if err != nil {
		t.Fatal(err)
	}
	_, _, rc, err := Stream(st, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	var seen Header
	snaps.Accept = func(h Header) error { seen = h; return errors.New("of another cluster") }
	sink, err := snaps.Create(1, 5, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(sink, rc); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err == nil || !strings.Contains(err.Error(), "of another cluster") || seen.Format == 0 {
		t.Errorf("%v, after a look at %+v", err, seen)
	}
	if list, err := snaps.List(); err != nil || len(list) != 0 {
		t.Errorf("it became the newest one: %v, %v", list, err)
	}
}

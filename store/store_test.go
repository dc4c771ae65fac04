package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

func TestOpenMakesAndFindsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	if s.Info().Format != Format || s.Info().Level != 1 || s.Counters() != (Counters{}) || s.Path() != path {
		t.Fatalf("%+v %+v", s.Info(), s.Counters())
	}
	populate(t, s)
	want, err := s.Digest()
	must(t, err)
	count := s.Counters()
	must(t, s.Close())
	must(t, s.Close()) // twice is fine
	if _, err := s.Begin(); err != ErrClosed {
		t.Fatal(err)
	}
	if err := s.View(func(*View) error { return nil }); err != ErrClosed {
		t.Fatal(err)
	}
	if _, err := s.CopyTo(os.Stdout); err != ErrClosed {
		t.Fatal(err)
	}
	s = openTest(t, path)
	if got, _ := s.Digest(); got != want || s.Counters() != count || s.OpenRunCount() != 5 || s.Size() == 0 {
		t.Fatalf("%+v", s.Counters())
	}
	sound(t, s)
}

func TestAFileInUseIsAClearError(t *testing.T) {
	s := newTest(t)
	o := quick
	o.LockTimeout = time.Millisecond
	for _, ro := range []bool{false, true} {
		o.ReadOnly = ro
		if _, err := Open(s.Path(), o); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Fatalf("%v", err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	must(t, s.Close())
	before, err := os.ReadFile(s.Path())
	must(t, err)
	a, err := Open(s.Path(), Options{ReadOnly: true})
	must(t, err)
	defer a.Close()
	b, err := Open(s.Path(), Options{ReadOnly: true}) // another reader may have it too
	must(t, err)
	defer b.Close()
	sound(t, a)
	if _, err := a.Begin(); err == nil {
		t.Fatal("it can be written")
	}
	after, err := os.ReadFile(s.Path())
	must(t, err)
	if string(before) != string(after) {
		t.Fatal("it was written")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no.db"), Options{ReadOnly: true}); err == nil {
		t.Fatal("a file that is not there")
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	for _, c := range []struct {
		format int
		want   string
	}{{Format + 1, "newer carillon"}, {Format - 1, "the carillon that wrote it"}} {
		s := newTest(t)
		must(t, s.Close())
		tamper(t, s.Path(), put(bucketMeta, keyInfo, fmt.Appendf(nil, `{"format":%d,"other":true}`, c.format)))
		before, err := os.ReadFile(s.Path())
		must(t, err)
		for _, o := range []Options{quick, {ReadOnly: true}} {
			if _, err := Open(s.Path(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("format %d: %v", c.format, err)
			}
		}
		after, err := os.ReadFile(s.Path())
		must(t, err)
		if string(before) != string(after) {
			t.Fatal("a refused file was written to")
		}
	}
}

// A damaged file is an error that says what to do, whatever is damaged: bbolt would panic in a goroutine of its own, or fault.
func TestADamagedFileIsAnError(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	update(t, s, func(b *Batch) { // enough to have branch and overflow pages
		for i := range job.ID(300) {
			addJob(t, b, 100+i, nil, Place{Ready: 1 << 40, At: 1 << 40}, nil)
		}
		must(t, b.PutCalendar(job.DefaultNamespace, "big", make([]byte, 50_000)))
	})
	var file strings.Builder
	_, err := s.CopyTo(&file)
	must(t, err)
	whole := file.String()
	page := os.Getpagesize()
	open := func(t *testing.T, data string) error {
		path := filepath.Join(t.TempDir(), "bad.db")
		must(t, os.WriteFile(path, []byte(data), 0o600))
		s, err := Open(path, quick)
		if err == nil {
			_, _, err = s.Check()
			s.Close()
		}
		return err
	}
	if err := open(t, whole); err != nil {
		t.Fatalf("the copy is sound: %v", err)
	}
	t.Run("cut off", func(t *testing.T) {
		for _, n := range []int{1, 100, page - 1, page, 2 * page, len(whole) / 2, len(whole) - page, len(whole) - 1} {
			if err := open(t, whole[:n]); err == nil {
				t.Errorf("%d of %d bytes were opened", n, len(whole))
			}
		}
	})
	t.Run("overwritten", func(t *testing.T) {
		for at := 0; at < len(whole); at += page {
			fill := []string{"\x00", "\xff", "x"}[at/page%3]
			open(t, whole[:at]+strings.Repeat(fill, page)+whole[at+page:]) // a page may be free; what counts is that nothing panics
		}
		if err := open(t, strings.Repeat("garbage!", 4096)); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%v", err)
		}
	})
	t.Run("flipped", func(t *testing.T) {
		// Page headers and first elements, which is where a flip makes bbolt read elsewhere: each byte on one page in six.
		for at := 0; at < len(whole); at += page {
			for i := at / page % 6; i < 48; i += 6 {
				bad := []byte(whole)
				bad[at+i] ^= 0xff
				open(t, string(bad))
			}
		}
	})
	t.Run("both headers", func(t *testing.T) {
		bad := []byte(whole)
		bad[20] ^= 1
		if err := open(t, string(bad)); err != nil {
			t.Errorf("the other header is good: %v", err)
		}
		bad[page+20] ^= 1
		if err := open(t, string(bad)); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%v", err)
		}
	})
}

func TestVerifyPagesTakesWhatBboltMakes(t *testing.T) {
	dir := t.TempDir()
	if err := VerifyPages(filepath.Join(dir, "none.db")); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600))
	must(t, VerifyPages(filepath.Join(dir, "empty.db")))
	for _, size := range []int{1024, 4096, 16384} {
		path := filepath.Join(dir, fmt.Sprint(size))
		db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size, NoSync: true})
		must(t, err)
		must(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte("a"))
			must(t, err)
			for i := range uint64(3000) {
				must(t, b.Put(u64(i), make([]byte, i%100)))
			}
			must(t, b.Put([]byte("big"), make([]byte, 10*size)))
			in, err := b.CreateBucket([]byte("nested"))
			must(t, err)
			return in.Put([]byte("x"), []byte("y"))
		}))
		must(t, db.Update(func(tx *bolt.Tx) error {
			for i := range uint64(1000) {
				must(t, tx.Bucket([]byte("a")).Delete(u64(i*2)))
			}
			return nil
		}))
		must(t, db.Close())
		if err := VerifyPages(path); err != nil {
			t.Errorf("page size %d: %v", size, err)
		}
	}
}

// A batch that fails or is dropped leaves file and memory as they were, and the next one can begin.
func TestARolledBackBatchLeavesNothing(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	want, err := s.Digest()
	must(t, err)
	count := s.Counters()
	told := 0
	stop := s.Listen(func(*Changes) { told++ })
	b, err := s.Begin()
	must(t, err)
	b.C.Fence = 99
	must(t, b.DeleteState(jobClaimed))
	must(t, b.PutRun(job.RunKey{Job: jobManual, At: 600, Origin: 2}, nil, &Row{Status: job.RunPending, Ready: 1, Class: 1}))
	_, err = b.Class("another")
	must(t, err)
	b.SetInfo(Info{Format: 77})
	b.Rollback()
	if got, _ := s.Digest(); got != want || s.Counters() != count || s.Info().Format != Format || told != 0 {
		t.Fatal("something of it is there")
	}
	sound(t, s)
	b, err = s.Begin()
	must(t, err)
	if _, _, ok, _ := b.State(jobClaimed); !ok || b.KnownClass("another") || len(b.Open(jobManual)) != 2 {
		t.Fatal("the next batch sees it")
	}
	b.Rollback()
	stop()
	update(t, s, func(*Batch) {})
	if told != 0 {
		t.Fatal("a listener that went away was told")
	}
}

func TestListenersAreToldAfterTheCommit(t *testing.T) {
	s := newTest(t)
	var got []Changes
	defer s.Listen(func(c *Changes) {
		if s.Counters().Index == 0 {
			t.Error("told before the commit")
		}
		got = append(got, *c)
	})()
	populate(t, s)
	if len(got) != 1 || len(got[0].Jobs) != 6 || len(got[0].Due) != 4 || !got[0].Outbox || got[0].Reset {
		t.Fatalf("%+v", got)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, filepath.Join(dir, "state.db"))
	populate(t, s)
	old, err := s.Digest()
	must(t, err)
	other := openTest(t, filepath.Join(dir, "other.db"))
	update(t, other, func(b *Batch) {
		b.C.Index = 1234
		addJob(t, b, 9, nil, Place{Ready: 5, At: 5}, nil)
	})
	want, err := other.Digest()
	must(t, err)
	must(t, other.Close())

	// Nothing of what fails before the swap touches the old file.
	must(t, os.WriteFile(filepath.Join(dir, "garbage"), []byte(strings.Repeat("x", 20000)), 0o600))
	refuse := errors.New("not this one")
	for name, try := range map[string]func() error{
		"garbage": func() error { return s.Replace(filepath.Join(dir, "garbage"), nil) },
		"refused": func() error {
			return s.Replace(filepath.Join(dir, "other.db"), func(Counters, Info) error { return refuse })
		},
		"nowhere": func() error { return s.Replace(filepath.Join(dir, "no", "such.db"), nil) },
	} {
		if err := try(); err == nil || errors.Is(err, ErrSwapped) {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := s.Digest(); got != old {
			t.Errorf("%s: the old state is not what it was", name)
		}
	}
	reset := false
	defer s.Listen(func(c *Changes) { reset = reset || c.Reset })()
	must(t, s.Replace(filepath.Join(dir, "other.db"), func(c Counters, i Info) error {
		if c.Index != 1234 || i.Format != Format {
			t.Errorf("%+v %+v", c, i)
		}
		return nil
	}))
	if got, _ := s.Digest(); got != want || !reset || s.Counters().Index != 1234 || s.OpenRunCount() != 0 {
		t.Fatal("the new state is not there")
	}
	sound(t, s)
	update(t, s, func(b *Batch) { b.C.Index++ })
	must(t, s.Close())
	s = openTest(t, s.Path())
	if s.Counters().Index != 1235 {
		t.Fatal("the file under the name is another")
	}
}

// A view never sees a file and an index of different moments. Every batch leaves all states at the same generation as the counter,
// and as many open runs; run with -race.
func TestViewsAreOfOneMoment(t *testing.T) {
	const jobs, batches, readers = 20, 150, 3
	s := newTest(t)
	write := func(n int64) {
		update(t, s, func(b *Batch) {
			b.C.Index = uint64(n)
			for id := job.ID(1); id <= jobs; id++ {
				p := Place{Ready: n*100 + int64(id), At: n * 100}
				if n%5 == 0 {
					p = Place{Parked: true}
				}
				if n == 1 {
					addJob(t, b, id, nil, p, nil)
				}
				st, _, _, err := b.State(id)
				must(t, err)
				if !p.Parked {
					p.Lane = st.Lane
				}
				for _, ref := range b.Open(id) {
					k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
					row, _, err := b.Run(k)
					must(t, err)
					must(t, b.DeleteRun(k, &row))
				}
				for i := range n % 4 {
					must(t, b.PutRun(job.RunKey{Job: id, At: n*10 + i, Origin: 2}, nil, &Row{Status: job.RunWaiting, Class: st.Class}))
				}
				st.Gen, st.Waiting = uint32(n), uint32(n%4)
				must(t, b.PutState(id, &st, p))
			}
			if n%3 == 0 {
				_, err := b.Class(fmt.Sprint(n))
				must(t, err)
			}
		})
	}
	write(1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for seen := 0; !stop.Load() || seen == 0; seen++ {
				view(t, s, func(v *View) {
					inFile, _, err := readMeta(v.tx)
					if err != nil || inFile != v.C {
						t.Errorf("the view is at %d, the file at %d (%v)", v.C.Index, inFile.Index, err)
					}
					for id := job.ID(1); id <= jobs; id++ {
						st, _, ok, err := v.State(id)
						if err != nil || !ok || uint64(st.Gen) != v.C.Index || len(v.Open(id)) != int(st.Waiting) || v.Class(st.Class) == "" {
							t.Errorf("%s is at %d with %d runs, the view at %d (%v)", id, st.Gen, len(v.Open(id)), v.C.Index, err)
						}
						for _, ref := range v.Open(id) {
							if _, ok, err := v.Run(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}); !ok || err != nil {
								t.Errorf("a run that the index knows is not in the file (%v)", err)
							}
						}
					}
				})
				_ = s.Counters().Index + uint64(s.OpenRunCount()) + uint64(s.Info().Level)
			}
		})
	}
	for n := int64(2); n <= batches; n++ {
		write(n)
	}
	stop.Store(true)
	wg.Wait()
}

func TestDiffers(t *testing.T) {
	a, b := newTest(t), newTest(t)
	for _, s := range []*Store{a, b} {
		update(t, s, func(b *Batch) { must(t, b.PutCalendar(job.DefaultNamespace, "same", []byte("1"))) })
	}
	if d, err := a.Differs(b); err != nil || len(d) > 0 {
		t.Fatalf("%q, %v", d, err)
	}
	update(t, a, func(b *Batch) { must(t, b.PutCalendar(job.DefaultNamespace, "same", []byte("2"))) })
	update(t, b, func(b *Batch) { must(t, b.PutCalendar(job.DefaultNamespace, "more", []byte("3"))) })
	d, err := a.Differs(b)
	want := []string{
		fmt.Sprintf(`calendars %x: "2" and "1"`, "\x00same"), fmt.Sprintf(`calendars %x: "" and "3"`, "\x00more"),
	}
	if err != nil || !slices.Equal(d, want) {
		t.Errorf("%q, %v, want %q", d, err, want)
	}
}

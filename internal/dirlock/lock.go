package dirlock

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// Beat is how often a holder changes its record: one small write, without fsync on a local file system.
	Beat = 5 * time.Second

	lockAgain  = 50 * time.Millisecond
	recordSize = 512 // with room for a long host name: always written as a whole, never cut
)

// Record is what the lock file says of its holder.
type Record struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Boot  string `json:"boot,omitempty"`
	Nonce string `json:"nonce"`
	Beat  uint64 `json:"beat"`
}

// HeldError says that a directory is in use.
type HeldError struct {
	By Record // zero if the holder left no record
}

func (e *HeldError) Error() string { return "in use by " + e.By.String() }

func (r Record) String() string {
	if r.Nonce == "" {
		return "another process"
	}
	return fmt.Sprintf("host %s, pid %d", r.Host, r.PID)
}

// The times of a starter, by the time between two beats. It watches for two beats and a half: one may be late, on a
// machine or a server that is busy.
func watchFor(every time.Duration) time.Duration  { return every * 5 / 2 }
func lookAgain(every time.Duration) time.Duration { return every / 20 }
func settleFor(every time.Duration) time.Duration { return every * 2 / 5 }

// Options say how a lock is taken.
type Options struct {
	Wait   time.Duration // how long to wait for a holder that is about to end
	Create bool          // make the file if there is none
	Kind   Kind          // of the file system
	Every  time.Duration // between two beats; 0: Beat
	// Taken is called, once and by a goroutine, if another process has written its record into the file.
	Taken func(*HeldError)
	// Self stands in for this process and its machine in tests.
	Self *Self
}

// Self is who takes a lock.
type Self struct {
	Host, Boot string
	PID        int
	Flock      func(*os.File) (bool, error)
}

func thisProcess() *Self {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return &Self{Host: host[:min(len(host), 253)], Boot: bootID(), PID: os.Getpid(), Flock: lockFile}
}

// Lock is a directory that this process has for itself.
type Lock struct {
	path string
	f    *os.File
	o    Options
	me   Record

	written bool // the record in the file is that of this process, or of one that took the directory from it

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// Open takes the lock with the given path, or says with a *HeldError who has it.
func Open(path string, o Options) (_ *Lock, err error) {
	if o.Self == nil {
		o.Self = thisProcess()
	}
	o.Every = cmp.Or(o.Every, Beat)
	flags := os.O_RDWR
	if o.Create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	l := &Lock{path: path, f: f, o: o, stop: make(chan struct{}),
		me: Record{Host: o.Self.Host, PID: o.Self.PID, Boot: o.Self.Boot, Nonce: rand.Text()}}
	if err := l.flock(); err != nil {
		return nil, err
	}
	if err := l.watch(); err != nil {
		return nil, err
	}
	if err := l.settle(); err != nil {
		return nil, err
	}
	l.done.Go(l.beats)
	return l, nil
}

func (l *Lock) flock() error {
	for end := time.Now().Add(l.o.Wait); ; time.Sleep(lockAgain) {
		switch ok, err := l.o.Self.Flock(l.f); {
		case ok:
			return nil
		case err != nil:
			return fmt.Errorf("lock %s: %w", l.path, err)
		}
		if time.Now().After(end) {
			data, _ := readRecord(l.f) //nolint:errcheck // that it is held is known already
			return &HeldError{parse(data)}
		}
	}
}

// watch refuses if the record that is there beats, where the lock alone does not rule that out.
func (l *Lock) watch() error {
	first, err := l.look()
	if err != nil {
		return err
	}
	fi, err := l.f.Stat()
	if err != nil {
		return err
	}
	if !l.doubtful(first, time.Since(fi.ModTime())) {
		return nil
	}
	for end := time.Now().Add(watchFor(l.o.Every)); time.Now().Before(end); time.Sleep(lookAgain(l.o.Every)) {
		now, err := l.look()
		if err != nil {
			return err
		}
		if len(now) > 0 && !bytes.Equal(now, first) {
			return &HeldError{parse(now)}
		}
	}
	return nil
}

// doubtful says whether the holder that a record is of may live although its lock was granted again. age is how long
// ago the record changed, by clocks that may differ on a shared file system; it is not asked for there.
func (l *Lock) doubtful(record []byte, age time.Duration) bool {
	if len(record) == 0 {
		return false
	}
	r := parse(record)
	if l.o.Kind == Shared {
		return r.Boot == "" || r.Boot != l.me.Boot
	}
	recent := max(age, -age) < 3*l.o.Every
	return r.Nonce != "" && r.Boot != l.me.Boot && r.Host != l.me.Host && recent
}

// settle writes the record of this process. On a shared file system another one may do the same at this moment.
func (l *Lock) settle() error {
	err := l.write()
	switch l.written = err == nil; {
	case l.o.Kind == Local && errors.Is(err, syscall.ENOSPC):
		return nil // the lock is what counts; a full disk is refused where data is written, if at all
	case err != nil:
		return err
	case l.o.Kind == Local:
		return nil
	}
	time.Sleep(settleFor(l.o.Every))
	if by, ok := l.other(); ok {
		return &HeldError{by}
	}
	return nil
}

func (l *Lock) beats() {
	tick := time.NewTicker(l.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		// A record that could not be written leaves that of the process before, which has ended.
		if by, ok := l.other(); ok && l.written {
			if l.o.Taken != nil {
				l.o.Taken(&HeldError{by})
			}
			return
		}
		// A failing disk ends the process where data is written; this is a sign of life and no more.
		l.written = l.write() == nil || l.written
	}
}

// other is the holder that the record names, if it is another one.
func (l *Lock) other() (Record, bool) {
	data, err := l.look()
	if err != nil {
		return Record{}, false
	}
	r := parse(data)
	return r, r.Nonce != "" && r.Nonce != l.me.Nonce
}

// look reads the record. On a shared file system the file is opened for that: an open file shows what this machine has
// cached.
func (l *Lock) look() ([]byte, error) {
	if l.o.Kind == Local {
		return readRecord(l.f)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRecord(f)
}

func readRecord(f *os.File) ([]byte, error) {
	b := make([]byte, recordSize)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

// parse reads a record; one that is not whole has no nonce.
func parse(b []byte) (r Record) {
	if json.Unmarshal(b, &r) != nil {
		return Record{}
	}
	return r
}

func (l *Lock) write() error {
	l.me.Beat++
	data, err := json.Marshal(l.me)
	if err != nil {
		return err
	}
	b := bytes.Repeat([]byte{' '}, recordSize)
	copy(b, data)
	b[recordSize-1] = '\n'
	if _, err := l.f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write %s: %w", l.path, err)
	}
	if l.o.Kind == Shared {
		return l.f.Sync() // another machine sees it only when it is with the server
	}
	return nil
}

// Close empties the record, if it is still that of this process, and gives the lock back.
func (l *Lock) Close() (err error) {
	l.once.Do(func() {
		close(l.stop)
		l.done.Wait()
		if _, taken := l.other(); !taken {
			_ = l.f.Truncate(0) //nolint:errcheck // what is left is watched by the next one, where that matters
		}
		err = l.f.Close()
	})
	return err
}

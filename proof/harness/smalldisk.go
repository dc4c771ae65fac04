package harness

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// SmallDisk is a file system of its own, in a file, that a test can fill.
type SmallDisk struct {
	Path string

	tb testing.TB
}

// NewSmallDisk makes one of some megabytes, which goes away with the test. Where that is not possible it says why. Make
// it before the nodes that live on it: it can only go when they are gone.
func NewSmallDisk(tb testing.TB, megabytes int64) (*SmallDisk, string) {
	tb.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		return nil, "a file system of its own needs root on Linux"
	}
	image := filepath.Join(tb.TempDir(), "disk")
	d := &SmallDisk{Path: filepath.Join(tb.TempDir(), "disk"), tb: tb}
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(megabytes<<20), f.Close(), os.Mkdir(d.Path, 0o700))
	}
	if err != nil {
		tb.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image},
		{"mount", "-o", "loop", image, d.Path}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Sprintf("%s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", d.Path).CombinedOutput(); err != nil {
			tb.Errorf("umount %s: %v: %s", d.Path, err, out)
		}
	})
	return d, ""
}

func (d *SmallDisk) filler() string { return filepath.Join(d.Path, "filler") }

// Fill takes all the room that is left.
func (d *SmallDisk) Fill() {
	d.tb.Helper()
	f, err := os.Create(d.filler())
	if err != nil {
		d.tb.Fatal(err)
	}
	defer f.Close()
	if _, err = io.Copy(f, rand.Reader); err == nil || !errors.Is(err, syscall.ENOSPC) {
		d.tb.Fatalf("the disk does not fill: %v", err)
	}
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		d.tb.Fatal(err)
	}
}

// Empty gives the room back.
func (d *SmallDisk) Empty() {
	d.tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.tb.Fatal(err)
	}
}

// FillBut takes the room that is left, but for some bytes.
func (d *SmallDisk) FillBut(leave int64) {
	d.tb.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.Path, &fs); err != nil {
		d.tb.Fatal(err)
	}
	f, err := os.Create(d.filler())
	if err != nil {
		d.tb.Fatal(err)
	}
	defer f.Close()
	free := int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // its type differs between systems
	if _, err := io.CopyN(f, rand.Reader, free-leave); err != nil {
		d.tb.Fatalf("the disk does not fill: %v", err)
	}
	if err := f.Sync(); err != nil {
		d.tb.Fatal(err)
	}
}

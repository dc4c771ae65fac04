package router_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

func (f *fake) Backup(context.Context) (wire.BackupInfo, io.ReadCloser, error) {
	if f.full {
		return wire.BackupInfo{}, nil, job.Errorf(job.CodeStorageFull, "make room", "there is no room")
	}
	text := fmt.Sprintf("state of %d;", f.group)
	info := wire.BackupInfo{ClusterID: "c", Index: uint64(f.group) + 7, Age: time.Duration(f.group) * time.Second,
		Size: int64(len(text))}
	if f.group == 0 {
		info.Groups = 3
	}
	f.copies.Add(1)
	return info, &closing{strings.NewReader(text), func() { f.copies.Add(-1) }}, nil
}

type closing struct {
	io.Reader
	close func()
}

func (c *closing) Close() error { c.close(); return nil }

// A backup is the copies of all groups, one behind the other; if one of them cannot be made there is none, and none is
// left open.
func TestBackupIsOfAllGroups(t *testing.T) {
	w := newWorld(1, 2, 3)
	open := func() (n int32) {
		for _, g := range w.groups {
			n += g.copies.Load()
		}
		return n
	}
	rec := call(t, w, "GET", "/backup", "", nil)
	h := rec.Header()
	if rec.Body.String() != "state of 0;state of 1;state of 2;state of 3;" || h.Get("Content-Length") != "44" ||
		h.Get(wire.HeaderIndex) != "7" || h.Get(wire.HeaderAge) != "3000" || h.Get(wire.HeaderGroups) != "3" || open() != 0 {
		t.Errorf("%d %s %v, %d open", rec.Code, rec.Body, h, open())
	}
	w.groups[2].full = true
	if rec := call(t, w, "GET", "/backup", "", nil); rec.Code != 507 || !strings.Contains(rec.Body.String(), "group 2: ") ||
		open() != 0 {
		t.Errorf("%d %s, %d open", rec.Code, rec.Body, open())
	}
	w.groups[2].full, w.down[3] = false, true
	if rec := call(t, w, "GET", "/backup", "", nil); rec.Code != 503 || !strings.Contains(rec.Body.String(), "group 3: ") ||
		open() != 0 {
		t.Errorf("%d %s, %d open", rec.Code, rec.Body, open())
	}
}

func (f *fake) Release(context.Context, api.Request) (wire.ReleaseResult, error) {
	f.acted = append(f.acted, "release")
	return f.release, nil
}

// A release is the control group's; the others are asked how far they are, and those that cannot be are waited for.
func TestReleaseNamesGroupsThatWait(t *testing.T) {
	w := newWorld(1, 2, 3)
	w.groups[0].release = wire.ReleaseResult{Released: true, At: 5}
	w.groups[1].release = wire.ReleaseResult{Releasing: true}
	w.groups[3].release = wire.ReleaseResult{Waiting: []uint32{3}}
	w.down[2] = true
	var r wire.ReleaseResult
	call(t, w, "POST", "/cluster:release", "", &r)
	if !r.Released || !r.Releasing || r.At != 5 || fmt.Sprint(r.Waiting) != "[2 3]" {
		t.Errorf("%+v", r)
	}
	w.down[0] = true
	w.groups[1].acted = nil
	if rec := call(t, w, "POST", "/cluster:release", "", nil); rec.Code != 503 || len(w.groups[1].acted) > 0 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// Status is on hold until all groups are released.
func TestStatusHoldsUntilAllAreReleased(t *testing.T) {
	w := newWorld(1, 2)
	w.groups[2].status.Hold = &wire.HoldStatus{Since: 7}
	var s wire.Status
	call(t, w, "GET", "/status", "", &s)
	if s.Hold == nil || !s.Hold.Releasing || s.Hold.Since != 7 || !strings.Contains(s.Hold.Remedy, "group 2") {
		t.Errorf("%+v", s.Hold)
	}
	w.groups[0].status.Hold = &wire.HoldStatus{Since: 7, Remedy: "release it"}
	s = wire.Status{}
	call(t, w, "GET", "/status", "", &s)
	if s.Hold == nil || s.Hold.Releasing || s.Hold.Remedy != "release it" {
		t.Errorf("%+v", s.Hold)
	}
}

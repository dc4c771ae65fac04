package schedule

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestZoneTable compares our list of segments with package time, also in the years beyond the tables of the zones.
func TestZoneTable(t *testing.T) {
	for _, name := range []string{"America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Africa/Casablanca",
		"Pacific/Apia", "Africa/Monrovia"} {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		check := func(unix int64) {
			if _, off := time.Unix(unix, 0).In(z.loc).Zone(); z.wall(unix)-unix != int64(off) {
				t.Fatalf("%s at %v: %d, want %d", name, time.Unix(unix, 0).UTC(), z.wall(unix)-unix, off)
			}
		}
		for unix := int64(0); unix < maxUnix; unix += 5 * 3600 {
			check(unix)
		}
		for _, s := range z.segs[1:] {
			check(s.start - 1)
			check(s.start)
			check(s.start + 1)
		}
	}
}

// TestZonesAreTame holds what dst.go relies on: a zone does not change again before a repeated or missing stretch of
// wall time is over. It looks at every zone there is.
func TestZonesAreTame(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip(err)
	}
	defer r.Close()
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		z, err := loadZone(f.Name)
		if err != nil {
			t.Logf("%s: %v", f.Name, err)
			continue
		}
		for i := 1; i < len(z.segs); i++ {
			shift := z.segs[i].off - z.segs[i-1].off
			if max(shift, -shift) > day || z.end(i)-z.segs[i].start < 3*day ||
				i > 1 && z.segs[i].start-z.segs[i-1].start < 3*day {
				t.Errorf("%s changes by %d s at %v, for %d h", f.Name, shift, time.Unix(z.segs[i].start, 0).UTC(),
					(z.end(i)-z.segs[i].start)/3600)
			}
		}
	}
}

// TestCivil compares the date arithmetic with package time, day by day.
func TestCivil(t *testing.T) {
	d := int64(-800)
	for at := time.Unix(d*day, 0).UTC(); at.Year() <= maxYear+1; at = at.AddDate(0, 0, 1) {
		y, m, dom := civil(d)
		if y != at.Year() || m != int(at.Month()) || dom != at.Day() || dayOf(y, m, dom) != d ||
			weekday(d) != int(at.Weekday()) || daysIn(y, m) != lastOfMonth(at) {
			t.Fatalf("%d is %d-%d-%d, want %v", d, y, m, dom, at)
		}
		d++
	}
}

package scheduler

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// Two secrets of one job may be bound to the same host in two ways: with a port and without.
func TestHostsOfTwoSecrets(t *testing.T) {
	for _, c := range []struct {
		a, b, want []string
	}{
		{[]string{"h"}, []string{"h"}, []string{"h"}},
		{[]string{"h", "x"}, []string{"h:443", "x"}, []string{"x", "h:443"}},
		{[]string{"h:443"}, []string{"h", "y"}, []string{"h:443"}},
		{[]string{"h:443", "h:80"}, []string{"h:80"}, []string{"h:80"}},
		{[]string{"H"}, []string{"h:443"}, []string{"h:443"}},
		{[]string{"[::1]"}, []string{"[::1]:443"}, []string{"[::1]:443"}},
		{[]string{"h:443"}, []string{"h:80"}, nil},
		{[]string{"h"}, []string{"x"}, nil},
	} {
		for _, pair := range [][2][]string{{c.a, c.b}, {c.b, c.a}} {
			got := common(pair[0], pair[1])
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if !slices.Equal(got, want) {
				t.Errorf("%v and %v: %v, want %v", pair[0], pair[1], got, want)
			}
		}
	}
}

// What both secrets allow is allowed to the run, whatever way it was written.
func TestRunKeepsItsTarget(t *testing.T) {
	spec := &job.Spec{Type: job.TypeHTTP, Payload: []byte(`{"url":"https://h/x"}`)}
	f := &filled{}
	for _, hosts := range [][]string{{"h", "x"}, {"h:443"}, {"H", "h:80"}} {
		if err := f.bind(spec, "s", hosts); err != nil {
			t.Fatal(err)
		}
		if len(f.hosts) == 0 || !job.SecretMayGoTo(f.hosts, "h:443") {
			t.Fatalf("after %v the run may go to %v, and not to its target", hosts, f.hosts)
		}
	}
	if job.SecretMayGoTo(f.hosts, "h:80") || job.SecretMayGoTo(f.hosts, "x:443") {
		t.Fatalf("the run may go to %v: more than all of its secrets allow", f.hosts)
	}
	g := &filled{}
	for _, hosts := range [][]string{{"h"}, {"[h]"}} { // the same, and not letter by letter
		if err := g.bind(spec, "s", hosts); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.hosts) == 0 || job.SecretMayGoTo(g.hosts, "x:443") {
		t.Fatalf("the run may go to %v: everywhere", g.hosts)
	}
	if err := f.bind(spec, "s", []string{"y"}); err == nil {
		t.Fatal("a secret for another host was taken")
	}
}

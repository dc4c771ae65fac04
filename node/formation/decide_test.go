package formation

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

var abc = []string{"a:1", "b:1", "c:1"}

// fresh is a new node at an address, with what it has promised.
func fresh(at string, ballot datadir.Ballot, list ...string) State {
	if list == nil {
		list = abc
	}
	host, _, _ := strings.Cut(at, ":")
	return State{Node: store.Node{ID: "n" + host, Instance: "i" + host, Address: at}, List: list, Ballot: ballot}
}

// formed is one of a cluster that nodes founded by a ballot.
func formed(s State, cluster string, members ...State) State {
	s.ClusterID = cluster
	for _, m := range members {
		s.Members = append(s.Members, m.Node)
	}
	return s
}

// recovered is one of a cluster that was recovered.
func recovered(s State, epoch uint64, recovery string) State {
	s.Epoch, s.Recovery = epoch, recovery
	return s
}

func TestDecide(t *testing.T) {
	t.Parallel()
	var none datadir.Ballot
	one := datadir.Ballot{Round: 1, Founder: "ia"}
	gone := datadir.Ballot{Round: 1, Founder: "ix"} // its directory was lost
	two := datadir.Ballot{Round: 2, Founder: "ia"}
	refused := errors.New("connection refused")
	a, b, c := fresh("a:1", one), fresh("b:1", one), fresh("c:1", one)
	change := func(s State, f func(*State)) State { f(&s); return s }
	for _, tc := range []struct {
		name    string
		self    State
		at      map[string]State // who answers
		vouched bool
		want    Action
		text    string // is part of what it says
		promise *datadir.Ballot
	}{
		{"nobody answers", fresh("a:1", none), nil, false, Wait,
			"waiting for b:1 and c:1 to answer: 1 of 3 new nodes seen", &one},
		{"one is late", a, map[string]State{"b:1": b}, false, Wait, "waiting for c:1 to answer: 2 of 3 new nodes seen",
			nil},
		{"nothing is promised before the founder answers", fresh("b:1", none), map[string]State{"c:1": fresh("c:1", none)},
			false, Wait, "waiting for a:1 to answer", nil},
		{"the founder is promised without the third", fresh("b:1", none), map[string]State{"a:1": a}, false, Wait,
			"waiting for c:1 to answer", &one},
		{"not all have promised", a, map[string]State{"b:1": b, "c:1": fresh("c:1", none)}, false, Wait,
			"waiting for c:1 to agree: all 3 new nodes seen", nil},
		{"all have promised", a, map[string]State{"b:1": b, "c:1": c}, false, Found, "", nil},
		{"another founds", b, map[string]State{"a:1": a, "c:1": c}, false, Wait, "waiting for a:1 to form the cluster", nil},
		{"promised to a founder that is gone", a, map[string]State{"b:1": fresh("b:1", gone), "c:1": c}, false, Wait,
			"to agree", &two},
		{"a later offer replaces a promise", fresh("b:1", gone), map[string]State{"a:1": fresh("a:1", two), "c:1": c},
			false, Wait, "to form", &two},
		{"an earlier one does not", fresh("b:1", datadir.Ballot{Round: 3, Founder: "ix"}),
			map[string]State{"a:1": fresh("a:1", two), "c:1": c}, false, Wait, "to form", nil},
		{"what another offers in the founder's place", fresh("b:1", none),
			map[string]State{"a:1": fresh("a:1", gone), "c:1": c}, false, Wait, "to form", nil},
		{"the cluster was founded with this node", b, map[string]State{"a:1": formed(a, "x", a, b, c)}, false, Adopt, "", nil},
		{"as another member knows", b, map[string]State{"c:1": formed(c, "x", a, b, c)}, false, Adopt, "", nil},
		{"it has promised another ballot since", fresh("b:1", two), map[string]State{"a:1": formed(a, "x", a, b, c)}, false,
			Join, "", nil},
		{"it was founded with the directory that is gone", change(b, func(s *State) { s.Node.Instance = "new" }),
			map[string]State{"a:1": formed(a, "x", a, b, c), "c:1": formed(c, "x", a, b, c)}, false, Join, "", nil},
		{"the founder lost its directory", fresh("a:1", none),
			map[string]State{"b:1": formed(b, "x", a, b, c), "c:1": formed(c, "x", a, b, c)}, false, Join, "", nil},
		{"and only one of the others answers", fresh("a:1", none), map[string]State{"c:1": formed(c, "x", a, b, c)}, false,
			Join, "", nil},
		{"a cluster that was begun otherwise", a, map[string]State{"b:1": change(formed(b, "x"), func(s *State) {
			s.List = nil
		})}, false, Join, "", nil},
		{"two clusters", a, map[string]State{"b:1": formed(b, "x"), "c:1": formed(c, "y")}, false, Refuse,
			"the node at b:1 belongs to cluster x, and the one at c:1 to cluster y", nil},
		{"one that a recovery gave up", a, map[string]State{"b:1": formed(b, "x"), "c:1": recovered(formed(c, "x"), 1, "r")},
			false, Join, "", nil},
		{"two recoveries", a, map[string]State{"b:1": recovered(formed(b, "x"), 1, "r"),
			"c:1": recovered(formed(c, "x"), 1, "s")}, false, Refuse,
			"the node at b:1 belongs to cluster x (epoch 1), and the one at c:1 to cluster x (epoch 1)", nil},
		{"another list", a, map[string]State{"b:1": b, "c:1": fresh("c:1", one, "a:1", "c:1")}, false, Refuse,
			"this node was started with --cluster a:1,b:1,c:1, and node nc at c:1 with --cluster a:1,c:1", nil},
		{"without a list", a, map[string]State{"b:1": change(b, func(s *State) { s.List = nil })}, false, Refuse,
			"was started without --cluster", nil},
		{"a cluster with another list", a, map[string]State{"b:1": change(formed(b, "x"), func(s *State) {
			s.List = []string{"b:1", "c:1", "d:1"}
		})}, false, Refuse, "with --cluster b:1,c:1,d:1", nil},
		{"which certificates vouch for", a, map[string]State{"b:1": change(formed(b, "x"), func(s *State) {
			s.List = []string{"b:1", "c:1", "d:1"}
		})}, true, Join, "", nil},
		{"one node under two addresses", a, map[string]State{"b:1": b, "c:1": change(b, func(s *State) {
			s.Node.Address = "c:1"
		})}, false, Refuse, "b:1 and c:1 lead to the same node, nb", nil},
		{"itself under another address", a, map[string]State{"b:1": change(a, func(s *State) { s.Node.Address = "b:1" })},
			false, Refuse, "a:1 and b:1 lead to the same node, na", nil},
		{"two nodes with one id", a, map[string]State{"b:1": b, "c:1": change(c, func(s *State) { s.Node.ID = "nb" })},
			false, Refuse, "have the same id, nb", nil},
		{"a node that is reached elsewhere", a, map[string]State{"b:1": change(b, func(s *State) {
			s.Node.Address = "b.example.com:1"
		})}, false, Refuse, "says that others reach it at b.example.com:1", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answers := map[string]Answer{}
			for _, addr := range Others(abc, tc.self.Node.Address) {
				s, ok := tc.at[addr]
				if answers[addr] = (Answer{State: s}); !ok {
					answers[addr] = Answer{Err: refused}
				}
			}
			d := Decide(Input{Self: tc.self, Address: tc.self.Node.Address, List: abc, Answers: answers,
				Vouched: tc.vouched})
			if tc.name == "one that a recovery gave up" && !slices.Equal(d.Addrs, []string{"c:1"}) {
				t.Errorf("it joins %v", d.Addrs)
			}
			if d.Do != tc.want || !strings.Contains(d.Text, tc.text) || (d.Do <= Refuse) != (d.Remedy != "") {
				t.Errorf("%+v", d)
			}
			if (d.Promise == nil) != (tc.promise == nil) || d.Promise != nil && *d.Promise != *tc.promise {
				t.Errorf("it promises %v", d.Promise)
			}
			if ids := len(d.Members); d.Do == Found && (ids != 3 || d.Members[2].ID != "nc") {
				t.Errorf("with %v", d.Members)
			}
		})
	}
}

// The first node of a list founds nothing before all others have answered, and alone never. With the fault planted this
// must fail.
func TestFoundsOnlyWithAll(t *testing.T) {
	one := datadir.Ballot{Round: 1, Founder: "ia"}
	for n := range 1 << 2 {
		answers := map[string]Answer{"b:1": {State: fresh("b:1", one)}, "c:1": {State: fresh("c:1", one)}}
		for i, addr := range []string{"b:1", "c:1"} {
			if n&(1<<i) != 0 {
				answers[addr] = Answer{Err: errors.New("no answer")}
			}
		}
		d := Decide(Input{Self: fresh("a:1", one), Address: "a:1", List: abc, Answers: answers})
		if found := d.Do == Found; found != (n == 0) || found && len(d.Members) != 3 {
			t.Errorf("%b: %+v", n, d)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	if got := Sorted([]string{"C:1", " b:1", "[::0001]:1"}); !slices.Equal(got, []string{"[::1]:1", "b:1", "c:1"}) {
		t.Errorf("%q", got)
	}
	for list, want := range map[string]string{
		"a:1,b:1,c:1": "", "a:1": "", "a:1,b:1": "", "a:1,A:1": "twice", "a": "missing port", "a:0": "not an address", ":1": "not an address",
	} {
		err := CheckList(strings.Split(list, ","))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", list, err)
		}
	}
	if err := CheckSelf(abc, "d:1"); err == nil || !strings.Contains(err.Error(), "d:1") {
		t.Error(err)
	}
	if CheckSelf(abc, "B:1") != nil || CheckSelf(nil, "d:1") != nil {
		t.Error("refused")
	}
}

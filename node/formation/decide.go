// Package formation is how nodes that were all started with the same list of addresses become one cluster, and never
// two. DESIGN.md says why it is safe.
package formation

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// State is what a node says of itself to those that it may form a cluster with.
type State struct {
	Node      store.Node `json:"node"` // the row that it is to have
	ClusterID string     `json:"cluster_id,omitempty"`
	Epoch     uint64     `json:"epoch,omitempty"`
	Recovery  string     `json:"recovery,omitempty"`
	List      []string   `json:"list,omitempty"` // of --cluster; none: it was started without
	// Ballot is what it has promised: the founder itself what it offers, and, of a cluster that was formed by a list,
	// how that was founded.
	Ballot  datadir.Ballot `json:"ballot,omitzero"`
	Members []store.Node   `json:"members,omitempty"` // with which the cluster was founded
	Admin   store.Token    `json:"admin,omitzero"`
}

func (s *State) cluster() lineage.Cluster {
	return lineage.Cluster{ID: s.ClusterID, Epoch: s.Epoch, Recovery: s.Recovery}
}

// Answer is what came from an address.
type Answer struct {
	State State
	Err   error // it did not answer
}

// Action is what a node does next.
type Action int

const (
	Wait   Action = iota // ask again
	Refuse               // ask again, and somebody has to do something
	Found                // begin the cluster, with Members
	Adopt                // belong to the cluster that From was founded with this node
	Join                 // ask to be taken in, at Addrs
)

// Decision is an action with its reason.
type Decision struct {
	Do           Action
	Text, Remedy string          // of Wait and Refuse
	Promise      *datadir.Ballot // is to be on the disk before this node is asked again
	Members      []store.Node
	From         State
	Addrs        []string
}

// Input is what a node knows.
type Input struct {
	Self    State
	Address string   // its own in the list
	List    []string // sorted
	Answers map[string]Answer
	// Vouched says that nodes know each other by certificates and new ones by a join token: a list is no proof then,
	// and need not be the same.
	Vouched bool
}

// Decide is what a node that belongs to no cluster does, by what the nodes of its list answered.
func Decide(in Input) Decision {
	if mutant.On(mutant.FoundAlone) && in.List[0] == in.Address {
		return Decision{Do: Found, Members: []store.Node{in.Self.Node}, Promise: &datadir.Ballot{
			Round: 1, Founder: in.Self.Node.Instance}}
	}
	if text, remedy := confused(in); text != "" {
		return Decision{Do: Refuse, Text: text, Remedy: remedy}
	}
	if d, some := belong(in); some {
		return d
	}
	if d, bad := otherList(in); bad {
		return d
	}
	return form(in)
}

// others are the addresses of the other nodes.
func (in *Input) others() []string {
	return Others(in.List, in.Address)
}

// confused says which addresses do not lead to the nodes that they should.
func confused(in Input) (text, remedy string) {
	byInstance := map[string]string{in.Self.Node.Instance: in.Address}
	byID := map[string]string{in.Self.Node.ID: in.Address}
	for _, addr := range in.others() {
		a := in.Answers[addr]
		if a.Err != nil {
			continue
		}
		n := a.State.Node
		if other := byInstance[n.Instance]; other != "" {
			return fmt.Sprintf("%s and %s lead to the same node, %s", other, addr, n.ID),
				"give --cluster one address for each node"
		}
		if other := byID[n.ID]; other != "" {
			return fmt.Sprintf("the nodes at %s and %s have the same id, %s", other, addr, n.ID),
				"give each node a --node-id of its own"
		}
		if Normal(n.Address) != addr {
			return fmt.Sprintf("the node at %s, %s, says that others reach it at %s", addr, n.ID, n.Address),
				"give --cluster the addresses that the nodes advertise (--advertise, or --listen)"
		}
		byInstance[n.Instance], byID[n.ID] = addr, addr
	}
	return "", ""
}

// belong is what to do where nodes belong to a cluster already.
func belong(in Input) (Decision, bool) {
	var formed []string // addresses of nodes of the cluster
	var first State
	for _, addr := range in.others() {
		s := in.Answers[addr].State
		if in.Answers[addr].Err != nil || s.ClusterID == "" {
			continue
		}
		if len(formed) == 0 {
			first = s
		}
		switch first.cluster().Compare(s.cluster()) {
		case lineage.Stranger, lineage.Rival:
			return Decision{Do: Refuse,
				Text: fmt.Sprintf("the node at %s belongs to cluster %s, and the one at %s to cluster %s", formed[0],
					first.cluster(), addr, s.cluster()),
				Remedy: "find out which cluster is the right one; stop the nodes of the other one, empty their data " +
					"directories, and start them again"}, true
		case lineage.Earlier: // a recovery gave it up
			continue
		case lineage.Later:
			first, formed = s, nil
		}
		formed = append(formed, addr)
		if sameList(in, s) && s.founded(in.Self.Node, in.Self.Ballot) {
			return Decision{Do: Adopt, From: s}, true
		}
	}
	if len(formed) == 0 {
		return Decision{}, false
	}
	for _, addr := range formed {
		if s := in.Answers[addr].State; len(s.List) > 0 && !sameList(in, s) && !in.Vouched {
			return Decision{Do: Refuse, Text: differ(in, addr), Remedy: "give this node the same list as the others; " +
				"to add a node to a cluster, start it with --join " + formed[0] + " instead of --cluster"}, true
		}
	}
	return Decision{Do: Join, Addrs: formed}, true
}

// founded says that a cluster was founded with a node, by the ballot that it has promised.
func (s *State) founded(n store.Node, promised datadir.Ballot) bool {
	return s.Ballot == promised && slices.ContainsFunc(s.Members, func(m store.Node) bool {
		return m.ID == n.ID && m.Instance == n.Instance
	})
}

func sameList(in Input, s State) bool { return slices.Equal(s.List, in.List) }

// differ names two lists that should be one.
func differ(in Input, addr string) string {
	return fmt.Sprintf("this node was started with --cluster %s, and node %s at %s with --cluster %s",
		strings.Join(in.List, ","), in.Answers[addr].State.Node.ID, addr,
		strings.Join(in.Answers[addr].State.List, ","))
}

// otherList refuses nodes that are new and are to form another cluster, or none.
func otherList(in Input) (Decision, bool) {
	for _, addr := range in.others() {
		a := in.Answers[addr]
		switch {
		case a.Err != nil || sameList(in, a.State):
			continue
		case len(a.State.List) == 0:
			return Decision{Do: Refuse,
				Text:   fmt.Sprintf("node %s at %s was started without --cluster", a.State.Node.ID, addr),
				Remedy: "start all nodes with the same --cluster, and without --bootstrap and --join"}, true
		}
		return Decision{Do: Refuse, Text: differ(in, addr), Remedy: "start all nodes with the same --cluster"}, true
	}
	return Decision{}, false
}

// form is what new nodes with one list do.
func form(in Input) Decision {
	founder := in.List[0]
	d := Decision{Promise: promise(in, founder)}
	var missing, why []string
	for _, addr := range in.others() {
		if err := in.Answers[addr].Err; err != nil {
			missing, why = append(missing, addr), append(why, fmt.Sprintf("%s: %v", addr, err))
		}
	}
	if len(missing) > 0 {
		d.Text = fmt.Sprintf("waiting for %s to answer: %d of %d new nodes seen", strings.Join(missing, " and "),
			len(in.List)-len(missing), len(in.List))
		d.Remedy = fmt.Sprintf("start every node of the list with the same --cluster (%s)", strings.Join(why, "; "))
		return d
	}
	if founder != in.Address {
		d.Text = fmt.Sprintf("waiting for %s to form the cluster: all %d new nodes seen", founder, len(in.List))
		d.Remedy = "wait a moment"
		return d
	}
	members := []store.Node{in.Self.Node}
	for _, addr := range in.others() {
		s := in.Answers[addr].State
		if d.Promise != nil || s.Ballot != in.Self.Ballot {
			d.Text = fmt.Sprintf("waiting for %s to agree: all %d new nodes seen", addr, len(in.List))
			d.Remedy = "wait a moment"
			return d
		}
		members = append(members, s.Node)
	}
	if d.Promise != nil { // a list of one
		d.Text, d.Remedy = "about to form the cluster", "wait a moment"
		return d
	}
	d.Do, d.Members = Found, members
	return d
}

// promise is what a node newly promises; nil: nothing. The founder offers a ballot above all that it sees. The others
// promise what it offers if that is above what they have promised: they never go back to an earlier founder, whose
// directory may be gone, or not.
func promise(in Input, founder string) *datadir.Ballot {
	own := in.Self.Ballot
	if founder != in.Address {
		a := in.Answers[founder]
		if offer := a.State.Ballot; a.Err == nil && offer.Founder == a.State.Node.Instance && offer.Compare(own) > 0 {
			return &offer
		}
		return nil
	}
	me := in.Self.Node.Instance
	highest := own
	for _, a := range in.Answers {
		if a.Err == nil && a.State.Ballot.Compare(highest) > 0 {
			highest = a.State.Ballot
		}
	}
	switch {
	case highest.Founder != me:
		return &datadir.Ballot{Round: highest.Round + 1, Founder: me}
	case highest != own:
		return &highest
	}
	return nil
}

// Normal is an address as lists are compared by it.
func Normal(addr string) string {
	host, port, err := net.SplitHostPort(strings.TrimSpace(addr))
	if err != nil {
		return strings.ToLower(strings.TrimSpace(addr))
	}
	if ip := net.ParseIP(host); ip != nil {
		host = ip.String()
	}
	return net.JoinHostPort(strings.ToLower(host), port)
}

// Sorted is a list in the order in which all nodes have it: its first address is that of the founder.
func Sorted(list []string) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = Normal(a)
	}
	slices.Sort(out)
	return out
}

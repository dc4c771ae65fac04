package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Net is a network of machines of their own, one a node: network namespaces on a bridge. This process stands on the
// bridge too and reaches all of them, and a target on it is reached by all.
//
// A way is cut by a wrong neighbour entry: what is sent that way goes to a card that does not exist. Neither side is
// told, packets are just gone, and the other direction is as it was. It needs no packet filter, and so no kernel
// modules.
type Net struct {
	Host string // this process's address

	tb     testing.TB
	name   string
	subnet netip.Prefix
	n      int
}

// netPrefix begins the names of everything that a Net makes, and the number of its process follows: interfaces have 15
// characters.
const netPrefix = "cb"

const maxMachines = 10

var making sync.Mutex

// NewNet makes a network of n machines, which goes away with the test. Where that is not possible it skips the test.
func NewNet(tb testing.TB, n int) *Net {
	tb.Helper()
	w, why := TryNet(tb, n)
	if why != "" {
		tb.Skip(why)
	}
	return w
}

// TryNet is NewNet for a test that has something to show without one: where it is not possible it says why.
func TryNet(tb testing.TB, n int) (*Net, string) {
	tb.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		return nil, "network namespaces need root on Linux"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, "network namespaces need the ip command"
	}
	making.Lock() // two tests beside each other must not choose the same name
	defer making.Unlock()
	sweepNets()
	if n > maxMachines {
		tb.Fatalf("a network of %d machines: there is room for %d", n, maxMachines)
	}
	w := &Net{tb: tb, n: n}
	for range 20 { // another test process may have the same idea
		w.name = fmt.Sprintf("%s%d.%d", netPrefix, os.Getpid(), rand.IntN(100))
		// of the range for tests of networks
		w.subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + rand.IntN(2)), byte(rand.IntN(256)),
			byte(16 * rand.IntN(16))}), 28)
		if _, err := net.InterfaceByName(w.bridge()); err != nil && !taken(w.subnet) {
			break
		}
	}
	w.Host = w.address(1)
	tb.Cleanup(w.remove)
	steps := [][]string{{"link", "add", w.bridge(), "type", "bridge"}}
	for i := range n {
		ns := w.ns(i)
		steps = append(steps, [][]string{
			{"netns", "add", ns},
			{"link", "add", w.port(i), "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"link", "set", w.port(i), "master", w.bridge(), "up"},
			{"-n", ns, "addr", "add", w.IP(i) + "/28", "dev", "eth0"},
			{"-n", ns, "link", "set", "eth0", "up"},
			{"-n", ns, "link", "set", "lo", "up"},
		}...)
	}
	steps = append(steps, []string{"addr", "add", w.Host + "/28", "dev", w.bridge()},
		[]string{"link", "set", w.bridge(), "up"})
	for _, s := range steps {
		if err := ip(s...); err != nil {
			return nil, fmt.Sprintf("no network namespaces here: %v", err)
		}
	}
	return w, ""
}

// taken says whether this machine has an address in a subnet.
func taken(subnet netip.Prefix) bool {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, perr := netip.ParsePrefix(a.String()); perr == nil && p.Overlaps(subnet) {
			return true
		}
	}
	return err != nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (w *Net) bridge() string    { return w.name }
func (w *Net) ns(i int) string   { return fmt.Sprintf("%s-%d", w.name, i) }
func (w *Net) port(i int) string { return fmt.Sprintf("%s-%d", w.name, i) }

// IP is the address of a machine.
func (w *Net) IP(i int) string { return w.address(2 + i) }

func (w *Net) address(i int) string {
	a := w.subnet.Addr().As4()
	a[3] += byte(i)
	return netip.AddrFrom4(a).String()
}

// Place puts a node on a machine.
func (w *Net) Place(i int, n *Node) {
	n.Move(net.JoinHostPort(w.IP(i), "7400"))
	n.Wrap = []string{"ip", "netns", "exec", w.ns(i)}
}

// In is what goes before a command that runs on a machine and needs this one's cgroups, which `ip netns exec` hides.
func (w *Net) In(i int) []string { return []string{"nsenter", "--net=/run/netns/" + w.ns(i)} }

// Cut loses everything that one machine sends to another, until Heal.
func (w *Net) Cut(from, to int) {
	w.tb.Helper()
	if err := ip("-n", w.ns(from), "neigh", "replace", w.IP(to), "lladdr", "02:00:00:00:00:00", "dev", "eth0", "nud",
		"permanent"); err != nil {
		w.tb.Fatal(err)
	}
}

// Isolate cuts a machine off from the others: what it sends is lost, or what is sent to it, or both.
func (w *Net) Isolate(i int, sends, gets bool) {
	w.tb.Helper()
	for j := range w.n {
		if j != i && sends {
			w.Cut(i, j)
		}
		if j != i && gets {
			w.Cut(j, i)
		}
	}
}

// Heal mends every way.
func (w *Net) Heal() {
	w.tb.Helper()
	for i := range w.n {
		if err := ip("-n", w.ns(i), "neigh", "flush", "dev", "eth0", "nud", "permanent"); err != nil {
			w.tb.Fatal(err)
		}
	}
}

func (w *Net) remove() {
	for i := range w.n {
		_ = ip("netns", "del", w.ns(i)) // takes its end of the cable with it
	}
	_ = ip("link", "del", w.bridge())
}

// sweepNets removes what test processes that are dead left behind.
func sweepNets() {
	owner := func(name string) (dead bool) {
		rest, ours := strings.CutPrefix(name, netPrefix)
		number, _, dotted := strings.Cut(rest, ".")
		pid, err := strconv.Atoi(number)
		if !ours || !dotted || err != nil {
			return false
		}
		_, err = os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
		return os.IsNotExist(err)
	}
	if names, err := os.ReadDir("/run/netns"); err == nil {
		for _, n := range names {
			if owner(n.Name()) {
				_ = ip("netns", "del", n.Name())
			}
		}
	}
	if links, err := net.Interfaces(); err == nil {
		for _, l := range links {
			if owner(l.Name) {
				_ = ip("link", "del", l.Name)
			}
		}
	}
}

package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// errRecorded is the end of every connection of a recorder: nothing is ever dialled.
var errRecorded = errors.New("recorded, not connected")

// recorder remembers which addresses would have been connected to.
type recorder struct {
	mu    sync.Mutex
	addrs []string
}

func (r *recorder) control(_, address string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs = append(r.addrs, address)
	return errRecorded
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.addrs
	r.addrs = nil
	return out
}

func mustNew(t *testing.T, o Options) *Policy {
	t.Helper()
	if o.Self == nil { // that of the machine that tests it may be one that they use
		o.Self = func() ([]net.Addr, error) { return nil, nil }
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dialled says what a policy does with a target: the class of the denial, empty if it would have been connected to.
func dialled(t *testing.T, p *Policy, r *recorder, addr string, trusted ...string) Class {
	t.Helper()
	conn, err := p.Dialer(time.Second, trusted...).DialContext(t.Context(), "tcp", addr)
	if conn != nil {
		conn.Close()
		t.Fatalf("%s was connected to", addr)
	}
	seen := r.take()
	var d *Denied
	switch {
	case errors.As(err, &d) && len(seen) == 0:
		return d.Class
	case errors.Is(err, errRecorded) && len(seen) == 1:
		return ""
	}
	t.Fatalf("%s: %v, %v", addr, err, seen)
	return Unknown
}

// denied has what is denied by default, in every form that leads to it.
var denied = map[string]Class{
	"127.0.0.1": Loopback, "127.255.255.254": Loopback, "::1": Loopback,
	"0.0.0.0": Unspecified, "0.1.2.3": Unspecified, "::": Unspecified,
	"169.254.1.1": LinkLocal, "169.254.255.255": LinkLocal, "fe80::1": LinkLocal, "febf::1": LinkLocal,
	"fe80::1%lo":      LinkLocal,
	"224.0.0.1":       Multicast,
	"239.255.255.250": Multicast, "ff02::1": Multicast, "255.255.255.255": Broadcast,
	"169.254.169.254": Metadata, "169.254.170.2": Metadata, "169.254.170.23": Metadata, "fd00:ec2::254": Metadata,
	"fd00:ec2::23": Metadata, "fd20:ce::254": Metadata, "168.63.129.16": Metadata, "192.0.0.192": Metadata,
	"fd00:c1::a9fe:a9fe": Metadata, "100.100.100.200": Metadata, "fe80::a9fe:a9fe": Metadata,
	"169.254.0.23": Metadata, "fd00:42::42": Metadata, "fd00:a9fe:a9fe::1": Metadata,

	// hidden IPv4
	"::ffff:127.0.0.1": Loopback, "::ffff:169.254.169.254": Metadata, "::ffff:0.0.0.0": Unspecified,
	"::127.0.0.1": Loopback, "::169.254.169.254": Metadata, // compatible
	"::ffff:0:127.0.0.1": Loopback,                                  // translated
	"2002:7f00:1::":      Loopback, "2002:a9fe:a9fe::1:2": Metadata, // 6to4
	"2001:0:7f00:1:0:ffff:f7f7:f7f7":  Loopback, // Teredo: server, then client
	"2001:0:808:808:0:ffff:80ff:fffe": Loopback,
	"2001::808:808:0:0:5601:5601":     Metadata,
	"64:ff9b::7f00:1":                 Loopback, "64:ff9b::a9fe:a9fe": Metadata, "64:ff9b::e000:1": Multicast,
	"64:ff9b:1::7f00:1":      Loopback, // a translator at 64:ff9b:1::/96
	"64:ff9b:1:2:3:4:7f00:1": Loopback, // at a longer one
	"64:ff9b:1:7f00:0:100::": Loopback, // at 64:ff9b:1::/48
	"64:ff9b:1:7f:0:1::":     Loopback, // at a /56
	"64:ff9b:1:9:7f:0:100::": Loopback, // at a /64
	"64:ff9b:1::":            Unspecified,
	"fe80::5efe:7f00:1":      LinkLocal,
	"2001:db8::5efe:7f00:1":  Loopback, "2001:db8::200:5efe:a9fe:a9fe": Metadata, // ISATAP
}

// allowed has what is not: public and private networks.
var allowed = []string{"8.8.8.8", "10.0.0.1", "172.16.5.4", "192.168.1.1", "100.64.0.1", "192.0.2.1", "1.0.0.1",
	"128.0.0.1", "169.253.1.1", "169.255.1.1", "2001:db8::1", "2600::1", "fc00::1", "fd12:3456::1", "::ffff:10.0.0.1",
	"2002:808:808::1", "64:ff9b::808:808", "64:ff9b::a00:1", "64:ff9b:1::808:808", "64:ff9b:1:808:8:800::",
	"2001:0:808:808:0:ffff:f7f7:f7f7", "2001:db8::5efe:a00:1"}

// TestByDefault: the dialer connects to public and private addresses and to no others, whatever form they have.
func TestByDefault(t *testing.T) {
	var r recorder
	p := mustNew(t, Options{Control: r.control})
	for addr, want := range denied {
		if got := dialled(t, p, &r, net.JoinHostPort(addr, "80")); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	for _, addr := range allowed {
		if got := dialled(t, p, &r, net.JoinHostPort(addr, "80")); got != "" {
			t.Errorf("%s is denied: %s", addr, got)
		}
	}
	for _, addr := range []string{":80", "[::]:80"} { // the machine itself, to the system
		if got := dialled(t, p, &r, addr); got == "" {
			t.Errorf("%s is allowed", addr)
		}
	}
}

// TestLoopbackAllowed: a node that is reached over the loopback interface only lets jobs use it, and nothing more.
func TestLoopbackAllowed(t *testing.T) {
	var r recorder
	p := mustNew(t, Options{Loopback: true, Control: r.control})
	for addr, class := range denied {
		want := class
		if class == Loopback {
			want = ""
		}
		if got := dialled(t, p, &r, net.JoinHostPort(addr, "80")); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	p = mustNew(t, Options{Loopback: true, Config: Config{Deny: []string{"loopback"}}, Control: r.control})
	for _, addr := range []string{"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"} {
		if got := dialled(t, p, &r, addr); got != Operator {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

// TestOtherNetworks: there is no way around the check by another kind of socket.
func TestOtherNetworks(t *testing.T) {
	var r recorder
	p := mustNew(t, Options{Loopback: true, Control: r.control})
	for _, network := range []string{"unix", "unixgram", "unixpacket", "udp", "udp4", "ip", "ip4:icmp", ""} {
		_, err := p.Dialer(time.Second, "/tmp/x:1").DialContext(t.Context(), network, "/tmp/x:1")
		if d := new(Denied); !errors.As(err, &d) || d.Class != Unknown || len(r.take()) != 0 {
			t.Errorf("%s: %v", network, err)
		}
	}
	for _, network := range []string{"udp4", "unix"} {
		if err := p.Dialer(time.Second).control(t.Context(), network, "8.8.8.8:53", nil); err == nil {
			t.Errorf("%s passes the check", network)
		}
	}
}

// TestRules: the more specific rule decides, the operator's before a built-in one, a denial before a permission.
func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		allow, deny string
		want        map[string]Class // "" is allowed
	}{
		"an address opens itself": {"127.0.0.1", "", map[string]Class{"127.0.0.1:80": "", "127.0.0.2:80": Loopback,
			"[::ffff:127.0.0.1]:80": "", "[64:ff9b::7f00:1]:80": "", "[::1]:80": Loopback}},
		"a port": {"127.0.0.1:8080,[::1]:8080", "", map[string]Class{"127.0.0.1:8080": "", "127.0.0.1:80": Loopback,
			"[::1]:8080": "", "[::1]:81": Loopback}},
		"loopback": {"loopback", "", map[string]Class{"127.3.2.1:80": "", "[::1]:80": "", "169.254.169.254:80": Metadata}},
		"all opens no metadata": {"all", "", map[string]Class{"127.0.0.1:80": Loopback, "169.254.169.254:80": Metadata,
			"224.0.0.1:80": Multicast, "8.8.8.8:80": ""}},
		"link-local without metadata": {"169.254.0.0/16", "", map[string]Class{"169.254.7.7:80": "",
			"169.254.169.254:80": Metadata}},
		"metadata by its address": {"169.254.169.254", "", map[string]Class{"169.254.169.254:80": "",
			"169.254.170.2:80": Metadata}},
		"a deny": {"", "10.0.0.0/8", map[string]Class{"10.1.2.3:80": Operator, "[2002:a01:203::]:80": Operator,
			"11.1.2.3:80": ""}},
		"allow inside": {"10.1.0.0/16", "10.0.0.0/8", map[string]Class{"10.1.2.3:80": "", "10.2.2.3:80": Operator}},
		"deny inside":  {"10.0.0.0/8", "10.1.0.0/16", map[string]Class{"10.1.2.3:80": Operator, "10.2.2.3:80": ""}},
		"the same":     {"10.0.0.0/8", "10.0.0.0/8", map[string]Class{"10.1.2.3:80": Operator}},
		"only some": {"10.0.0.0/8,api.example.com", "all", map[string]Class{"10.1.2.3:80": "", "8.8.8.8:80": Operator,
			"[2600::1]:80": Operator, "127.0.0.1:80": Loopback}},
		"a port of a denied address": {"10.1.2.3:443", "10.1.2.3", map[string]Class{"10.1.2.3:443": "",
			"10.1.2.3:80": Operator}},
		"mapped range":    {"", "::ffff:10.0.0.0/104", map[string]Class{"10.1.2.3:80": Operator}},
		"in another form": {"2130706433", "0x0a000001", map[string]Class{"127.0.0.1:80": "", "10.0.0.1:80": Operator}},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			list := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
			p := mustNew(t, Options{Config: Config{Allow: list(c.allow), Deny: list(c.deny)}, Control: r.control})
			for addr, want := range c.want {
				if got := dialled(t, p, &r, addr); got != want {
					t.Errorf("%s: %q, want %q", addr, got, want)
				}
			}
		})
	}
}

// TestBadRules: what is not understood is refused, with the flag, and a proxy's password is not shown.
func TestBadRules(t *testing.T) {
	for _, bad := range []string{"", " ", "10.0.0.0/33", "10.0.0.0/8:80", "http://x/", "a b", "host:0", "host:http",
		"host:70000",
		"*", "*.example.com", "10.0.0.256", "[::1", "::1:80:90:x", "fe80::1%eth0", "ex_am ple", "-/-", "a..b"} {
		for _, c := range []struct {
			flag string
			Config
		}{{"--egress-allow", Config{Allow: []string{bad}}}, {"--egress-deny", Config{Deny: []string{bad}}}} {
			_, err := New(Options{Config: c.Config})
			var e *ConfigError
			if !errors.As(err, &e) || e.Flag != c.flag || e.Remedy == "" {
				t.Errorf("%s %q: %v", c.flag, bad, err)
			}
		}
	}
	for _, bad := range []string{"proxy:3128", "ftp://u:secret@p", "http://", "http://u:secret@p:3128/path",
		"http://u:secret@p:x"} {
		_, err := New(Options{Config: Config{Proxy: bad}})
		var e *ConfigError
		if !errors.As(err, &e) || e.Flag != "--egress-proxy" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// names is a resolver with answers of its own: each lookup of a name takes the next one.
func names(t *testing.T, answers map[string][]string) *net.Resolver {
	var mu sync.Mutex
	count := map[string]int{}
	answer := func(q []byte) []byte {
		name, i := "", 12
		for q[i] != 0 {
			name += string(q[i+1:i+1+int(q[i])]) + "."
			i += 1 + int(q[i])
		}
		kind := binary.BigEndian.Uint16(q[i+1:])
		a := append([]byte{}, q[:i+5]...)
		a[2], a[3] = 0x81, 0x80
		binary.BigEndian.PutUint16(a[10:], 0) // no additional records
		mu.Lock()
		defer mu.Unlock()
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		list := answers[name]
		if len(list) == 0 {
			a[3] |= 3 // no such name
			return a
		}
		n := 0
		for text := range strings.FieldsSeq(list[min(count[name]/2, len(list)-1)]) { // A and AAAA are a lookup
			ip := netip.MustParseAddr(text)
			if ip.Is4() != (kind == 1) {
				continue
			}
			raw := ip.AsSlice()
			a = append(a, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
			a = append(a, raw...)
			n++
		}
		binary.BigEndian.PutUint16(a[6:], uint16(n))
		count[name]++
		return a
	}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(there, size[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(there, q); err != nil {
					return
				}
				a := answer(q)
				if _, err := there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}}
}

// TestNames: it is the address that counts, at every dial. A name that is public at first and the machine itself later
// (DNS rebinding) gets nowhere the second time.
func TestNames(t *testing.T) {
	var r recorder
	p := mustNew(t, Options{Control: r.control, Resolver: names(t, map[string][]string{
		"rebound.example.com": {"192.0.2.7", "127.0.0.1"},
		"meta.example.com":    {"169.254.169.254"},
		"six.example.com":     {"64:ff9b::a9fe:a9fe"},
		"trusted.example.com": {"127.0.0.1"},
		"ok.example.com":      {"10.1.2.3"},
		"shut.example.com":    {"10.1.2.3"},
	}), Config: Config{Allow: []string{"Trusted.example.com.:8080"}, Deny: []string{"shut.example.com"}}})
	for _, step := range []struct {
		addr string
		want Class
	}{{"rebound.example.com:80", ""}, {"rebound.example.com:80", Loopback}, {"meta.example.com:80", Metadata},
		{"six.example.com:80", Metadata}, {"trusted.example.com:8080", ""}, {"trusted.example.com:80", Loopback},
		{"TRUSTED.example.com.:8080", ""}, {"ok.example.com:80", ""}, {"shut.example.com:80", Operator},
		{"SHUT.example.com.:80", Operator}} {
		if got := dialled(t, p, &r, step.addr); got != step.want {
			t.Errorf("%s: %q, want %q", step.addr, got, step.want)
		}
	}
	if got := dialled(t, p, &r, "meta.example.com:80", "Meta.example.com:80"); got != "" {
		t.Errorf("what the operator configured is denied: %s", got)
	}
	if got := dialled(t, p, &r, "meta.example.com:81", "meta.example.com:80"); got != Metadata {
		t.Errorf("another port of it is not: %q", got)
	}
}

// TestSomeAddresses: a name with an address that is allowed is connected to there. If that does not answer, it may
// later: the failure is not the denial of the other one.
func TestSomeAddresses(t *testing.T) {
	var r recorder
	var counted int
	p := mustNew(t, Options{Control: r.control, OnDenied: func(*Denied) { counted++ },
		Resolver: names(t, map[string][]string{
			"two.example.com":  {"127.0.0.1 192.0.2.9"},
			"none.example.com": {"127.0.0.1 169.254.1.1"},
		})})
	_, err := p.Dialer(time.Second).DialContext(t.Context(), "tcp", "two.example.com:80")
	if seen := r.take(); errors.As(err, new(*Denied)) || len(seen) != 1 || seen[0] != "192.0.2.9:80" || counted != 0 {
		t.Errorf("%v, %v, %d denied", err, seen, counted)
	}
	_, err = p.Dialer(time.Second).DialContext(t.Context(), "tcp", "none.example.com:80")
	if seen := r.take(); !errors.As(err, new(*Denied)) || len(seen) != 0 || counted != 1 {
		t.Errorf("%v, %v, %d denied", err, seen, counted)
	}
}

// TestMessages: who reads the error knows what was denied, by which rule, and what to do.
func TestMessages(t *testing.T) {
	var r recorder
	p := mustNew(t, Options{Control: r.control, Config: Config{Deny: []string{"10.0.0.0/8"}},
		Resolver: names(t, map[string][]string{"meta.example.com": {"64:ff9b::a9fe:a9fe"}})})
	for addr, want := range map[string]string{
		"127.0.0.1:80": "egress denied: 127.0.0.1:80 is a loopback address (rule 127.0.0.0/8): start the node or the " +
			"worker with --egress-allow if jobs may reach it",
		"meta.example.com:80": "egress denied: meta.example.com:80 is 64:ff9b::a9fe:a9fe, which leads to 169.254.169.254, " +
			"which is a metadata address of a cloud (rule 169.254.169.254/32): start the node or the worker with " +
			"--egress-allow if jobs may reach it",
		"10.2.3.4:80": "egress denied: 10.2.3.4:80 is denied on this worker (rule 10.0.0.0/8): see its --egress-deny and " +
			"--egress-allow",
	} {
		_, err := p.Dialer(time.Second).DialContext(t.Context(), "tcp", addr)
		var d *Denied
		if !errors.As(err, &d) || d.Error() != want {
			t.Errorf("%s: %v\nwant %s", addr, err, want)
		}
	}
}

// TestProxy: everything goes through the proxy, which may be anywhere, and nothing that can be known to be denied is
// asked of it. The environment has no say.
func TestProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.66:1")
	t.Setenv("HTTPS_PROXY", "http://192.0.2.66:1")
	var r recorder
	var counted int
	base := Options{Control: r.control, OnDenied: func(*Denied) { counted++ }, Config: Config{
		Proxy: "http://127.0.0.1:3128", Allow: []string{"trusted.example.com", "127.0.0.9"},
		Deny: []string{"shut.example.com", "10.0.0.0/8"}}}
	host := ""
	call := func(o Options, url string, trusted ...string) Class {
		t.Helper()
		var tr http.Transport
		mustNew(t, o).Transport(&tr, time.Second, trusted...)
		rq, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			rq.Host = host
		}
		resp, err := tr.RoundTrip(rq)
		if err == nil {
			resp.Body.Close()
			t.Fatalf("%s was answered", url)
		}
		seen := r.take()
		var d *Denied
		switch {
		case errors.As(err, &d) && len(seen) == 0:
			return d.Class
		case errors.Is(err, errRecorded) && len(seen) == 1 && seen[0] == "127.0.0.1:3128":
			return ""
		}
		t.Fatalf("%s: %v, %v", url, err, seen)
		return Unknown
	}
	for url, want := range map[string]Class{
		"http://public.example.com/": "", "https://public.example.com/": "", "http://192.0.2.1/": "",
		"http://127.0.0.1/": Loopback, "http://127.0.0.1:3128/": Loopback, "https://[::1]/": Loopback,
		"http://127.1/":      Loopback,
		"http://0x7f000001/": Loopback, "http://2130706433/": Loopback, "http://0177.0.0.1/": Loopback,
		"http://127.0.0.1./": Loopback, "http://localhost/": Loopback, "http://LocalHost./": Loopback,
		"http://a.localhost/": Loopback, "http://127.0.0.9/": "", "http://169.254.169.254/": Metadata,
		"http://[fe80::1%25eth0]/": LinkLocal, "http://[64:ff9b::7f00:1]/": Loopback, "http://10.1.1.1/": Operator,
		"http://shut.example.com/": Operator, "http://trusted.example.com/": "", "http://0/": Unspecified,
		"http://１２７.０.０.１/": Unknown, "http://ｌocalhost/": Unknown,
	} {
		if got := call(base, url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	if counted == 0 {
		t.Error("denials were not counted")
	}
	// The proxy is asked for what the header Host says.
	for name, want := range map[string]Class{"other.example.com": "", "public.example.com:8080": "", "10.1.1.1": Operator,
		"127.0.0.1:8080": Loopback, "localhost": Loopback, "shut.example.com": Operator, "169.254.169.254": Metadata,
		"127.0.0.1:80/x": Unknown, "127.0.0.1 x": Unknown, "１２７.０.０.１": Unknown} {
		host = name
		if got := call(base, "http://public.example.com/"); got != want {
			t.Errorf("Host: %s: %q, want %q", name, got, want)
		}
	}
	host = ""
	if got := call(base, "http://127.0.0.1:9/x", "127.0.0.1:9"); got != "" {
		t.Errorf("what the operator configured is denied: %s", got)
	}
	closed := base
	closed.Deny = []string{"all"}
	for url, want := range map[string]Class{"http://public.example.com/": Operator, "http://trusted.example.com/": ""} {
		if got := call(closed, url); got != want {
			t.Errorf("deny all, %s: %q, want %q", url, got, want)
		}
	}
	// without a proxy of its own it uses none
	var tr http.Transport
	mustNew(t, Options{Control: r.control}).Transport(&tr, time.Second)
	rq, err := http.NewRequestWithContext(t.Context(), "GET", "http://192.0.2.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(rq); !errors.Is(err, errRecorded) { //nolint:bodyclose // there is none
		t.Error(err)
	}
	if seen := r.take(); len(seen) != 1 || seen[0] != "192.0.2.1:80" {
		t.Errorf("the environment's proxy was used: %v", seen)
	}
}

// FuzzEmbedded: however an IPv4 address that is denied is wrapped, it stays denied.
func FuzzEmbedded(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "169.254.169.254", "8.8.8.8", "10.0.0.0", "224.0.0.251"} {
		f.Add(netip.MustParseAddr(a).AsSlice(), uint64(0x1234), byte(3))
	}
	p := Default
	f.Fuzz(func(t *testing.T, raw []byte, fill uint64, length byte) {
		if len(raw) != 4 {
			return
		}
		v4 := netip.AddrFrom4([4]byte(raw))
		wrap := func(put func(b *[16]byte)) netip.Addr {
			var b [16]byte
			put(&b)
			return netip.AddrFrom16(b)
		}
		wrapped := map[string]netip.Addr{
			"mapped": wrap(func(b *[16]byte) { b[10], b[11] = 0xff, 0xff; copy(b[12:], raw) }),
			"6to4": wrap(func(b *[16]byte) {
				b[0], b[1] = 0x20, 0x02
				copy(b[2:], raw)
				binary.BigEndian.PutUint64(b[8:], fill)
			}),
			"nat64": wrap(func(b *[16]byte) { b[1], b[2], b[3] = 0x64, 0xff, 0x9b; copy(b[12:], raw) }),
			"teredo": wrap(func(b *[16]byte) {
				b[0], b[1] = 0x20, 0x01
				binary.BigEndian.PutUint64(b[4:], fill)
				for i, c := range raw {
					b[12+i] = ^c
				}
			}),
			"local nat64": wrap(func(b *[16]byte) {
				b[1], b[2], b[3], b[5] = 0x64, 0xff, 0x9b, 1
				at := [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}[length%4]
				for i, c := range raw {
					b[at[i]] = c
				}
			}),
		}
		for name, a := range wrapped {
			if name == "local nat64" && thisNetwork.Contains(v4) {
				continue // its zeros may belong to another place, and no translator sends it on
			}
			if p.judge("x:1", v4, 1) != nil && p.judge("x:1", a, 1) == nil {
				t.Errorf("%s is denied, and as %s, %s, it is not", v4, name, a)
			}
		}
	})
}

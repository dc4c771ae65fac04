package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// Config is what an operator says, in the words of the flags.
type Config struct {
	Allow []string // --egress-allow
	Deny  []string // --egress-deny
	Proxy string   // --egress-proxy; empty: targets are called directly
}

// Options describe a Policy.
type Options struct {
	Config
	Loopback bool                                // jobs may use this machine, unless Config says otherwise
	OnDenied func(d *Denied)                     // called for every connection that was denied; nil: nothing
	Resolver *net.Resolver                       // nil: the system's
	Self     func() ([]net.Addr, error)          // the addresses of this machine's interfaces; nil: net.InterfaceAddrs
	Control  func(network, address string) error // called with every address that may be dialled; an error prevents it
}

// Policy decides what jobs may connect to. It does not change; it may be used by several goroutines.
type Policy struct {
	o     Options
	rules []rule
	proxy *url.URL // nil: none
	local bool     // this machine's own addresses are allowed, as its loopback ones
	self  self
}

// Default has the built-in rules and nothing else.
var Default = func() *Policy {
	p, err := New(Options{})
	if err != nil {
		panic(err)
	}
	return p
}()

// ConfigError says which setting is wrong.
type ConfigError struct {
	Flag, Remedy string
	Err          error
}

func (e *ConfigError) Error() string { return e.Flag + ": " + e.Err.Error() + ": " + e.Remedy }

// Unwrap is what is wrong with it.
func (e *ConfigError) Unwrap() error { return e.Err }

// New makes a policy. The error is a *ConfigError.
func New(o Options) (*Policy, error) {
	p := &Policy{o: o, rules: builtinRules(o.Loopback), local: o.Loopback}
	if p.self.look = o.Self; p.self.look == nil {
		p.self.look = net.InterfaceAddrs
	}
	for _, side := range []struct {
		flag  string
		list  []string
		allow bool
	}{{"--egress-allow", o.Allow, true}, {"--egress-deny", o.Deny, false}} {
		for _, text := range side.list {
			rules, err := parseRules(text, side.allow)
			if err != nil {
				return nil, &ConfigError{side.flag,
					"use an address, a range such as 10.0.0.0/8, a name, an address or a name with " +
						":PORT, loopback or all", err}
			}
			p.rules = append(p.rules, rules...)
			if strings.EqualFold(strings.TrimSpace(text), "loopback") {
				p.local = side.allow
			}
		}
	}
	if o.Proxy != "" {
		u, err := parseProxy(o.Proxy)
		if err != nil {
			return nil, &ConfigError{"--egress-proxy", "use a URL such as http://proxy.example.com:3128", err}
		}
		p.proxy = u
	}
	return p, nil
}

// proxyPorts are the kinds of proxy that there can be, and where they are if the URL does not say.
var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// parseProxy reads the URL of a proxy. Its errors do not show it: it may have a password.
func parseProxy(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("the proxy is not a URL with a host")
	}
	if proxyPorts[u.Scheme] == "" {
		return nil, errors.New("a proxy speaks http, https or socks5")
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL of a proxy ends with its port")
	}
	return u, nil
}

// Denied is the error of a connection that the rules do not allow. No attempt will get through.
type Denied struct {
	Target  string     // host:port as the job named it
	Address netip.Addr // what it resolved to; not valid if the name was enough
	Hidden  netip.Addr // what Address carries, if that is why
	Class   Class
	Rule    string
}

func (d *Denied) Error() string {
	host, _, err := net.SplitHostPort(d.Target)
	if err != nil {
		host = d.Target
	}
	what := d.Target
	if d.Address.IsValid() {
		if a, ok := literal(host); !ok || a.WithZone("").Unmap() != d.Address {
			what += " is " + d.Address.String() + ", which"
		}
		if d.Hidden.IsValid() {
			what += " leads to " + d.Hidden.String() + ", which"
		}
	}
	remedy := "start the node or the worker with --egress-allow if jobs may reach it"
	switch d.Class {
	case Operator:
		remedy = "see its --egress-deny and --egress-allow"
	case Unknown:
		remedy = "name a host and a port"
	}
	return fmt.Sprintf("egress denied: %s is %s (rule %s): %s", what, is[d.Class], d.Rule, remedy)
}

// judge says whether an address may be connected to; nil: it may.
func (p *Policy) judge(target string, a netip.Addr, port uint16) *Denied {
	a = a.WithZone("").Unmap()
	for _, form := range forms(a) {
		r := p.match(form, port)
		if own := p.deny(form); own != nil && own.beats(r) {
			r = own
		}
		if r != nil && !r.allow {
			d := &Denied{Target: target, Address: a, Class: r.class, Rule: r.text}
			if form != a {
				d.Hidden = form
			}
			return d
		}
	}
	return nil
}

func (p *Policy) match(a netip.Addr, port uint16) (best *rule) {
	for i := range p.rules {
		r := &p.rules[i]
		if r.name == "" && (r.port == 0 || r.port == port) && r.prefix.Contains(a) && r.beats(best) {
			best = r
		}
	}
	return best
}

// matchName is the rule for a name; nil: there is none, and its addresses decide.
func (p *Policy) matchName(host string, port uint16) (best *rule) {
	host = normal(host)
	for i := range p.rules {
		r := &p.rules[i]
		if r.name == host && r.name != "" && (r.port == 0 || r.port == port) && r.beats(best) {
			best = r
		}
	}
	return best
}

// judgeUnresolved judges a host that a proxy will resolve, by what can be known here: its name, its address if it is
// one, and that localhost is the loopback address everywhere. A rule for all addresses is one for all names.
func (p *Policy) judgeUnresolved(target, host string, port uint16) *Denied {
	if r := p.matchName(host, port); r != nil {
		if r.allow {
			return nil
		}
		return &Denied{Target: target, Class: r.class, Rule: r.text}
	}
	if a, ok := literal(host); ok {
		return p.judge(target, a, port)
	}
	name := normal(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return p.judge(target, netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	if !isName(name) { // digits of other scripts become an address on their way to the proxy
		return &Denied{Target: target, Class: Unknown, Rule: "ASCII names only, through a proxy"}
	}
	var best *rule
	for i := range p.rules {
		if r := &p.rules[i]; r.name == "" && r.bits() == 0 && r.beats(best) {
			best = r
		}
	}
	if best != nil && !best.allow {
		return &Denied{Target: target, Class: best.class, Rule: best.text}
	}
	return nil
}

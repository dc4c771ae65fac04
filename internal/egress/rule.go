package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Class is why a connection is denied, in a word: a label of the metric.
type Class string

// The classes.
const (
	Loopback    Class = "loopback"
	Self        Class = "self" // an address of this machine
	LinkLocal   Class = "link_local"
	Metadata    Class = "metadata"
	Unspecified Class = "unspecified"
	Multicast   Class = "multicast"
	Broadcast   Class = "broadcast"
	Operator    Class = "egress_deny" // by --egress-deny
	Unknown     Class = "unknown"     // no TCP, or no address: nothing that could be judged
)

// is says it in a sentence: "127.0.0.1 is a loopback address".
var is = map[Class]string{
	Loopback: "a loopback address", Self: "an address of this machine", LinkLocal: "a link-local address",
	Metadata:    "a metadata address of a cloud",
	Unspecified: "not the address of a host", Multicast: "a multicast address", Broadcast: "the broadcast address",
	Operator: "denied on this worker", Unknown: "not an address that can be judged",
}

// builtin is what jobs may not reach unless the operator says so. Private networks are not in it: to call services in
// them is what a scheduler of one's own is for.
var builtin = []struct {
	class    Class
	prefixes []string
}{
	{Loopback, []string{"127.0.0.0/8", "::1/128"}},
	{LinkLocal, []string{"169.254.0.0/16", "fe80::/10"}},
	{Unspecified, []string{"0.0.0.0/8", "::/128"}},
	{Multicast, []string{"224.0.0.0/4", "ff00::/8"}},
	{Broadcast, []string{"255.255.255.255/32"}},
	// Those among the link-local ones are listed so that allowing 169.254.0.0/16 does not open them.
	{Metadata, []string{
		"169.254.169.254/32", "fe80::a9fe:a9fe/128", // nearly all: AWS, Google, Azure, Oracle, OpenStack, …
		"fd00:ec2::/32", "169.254.170.2/32", "169.254.170.23/32", // AWS: instances; tasks of ECS, pods of EKS
		"fd20:ce::254/128",                         // Google
		"168.63.129.16/32",                         // Azure, the host's own service
		"192.0.0.192/32", "fd00:c1::a9fe:a9fe/128", // Oracle
		"100.100.100.200/32", "fd00:100::100:200/128", // Alibaba
		"169.254.0.23/32", "169.254.10.10/32", // Tencent
		"169.254.42.42/32", "fd00:42::42/128", // Scaleway
		"169.254.169.255/32", "fd00:a9fe:a9fe::1/128", // Linode
	}},
}

// byName is how specific a rule for a name is: more than one for any prefix.
const byName = 1000

// rule allows or denies a prefix of addresses, or a name.
type rule struct {
	text   string // as the operator wrote it, or the prefix
	class  Class
	prefix netip.Prefix
	name   string // instead of a prefix
	port   uint16 // 0: all
	allow  bool
	own    bool // built in
}

func (r *rule) bits() int {
	if r.name != "" {
		return byName
	}
	return r.prefix.Bits()
}

// beats orders the rules that match: the more specific one decides, that of the operator before a built-in one, a
// denial before a permission.
func (r *rule) beats(o *rule) bool {
	switch {
	case o == nil:
		return true
	case r.bits() != o.bits():
		return r.bits() > o.bits()
	case (r.port != 0) != (o.port != 0):
		return r.port != 0
	case r.own != o.own:
		return !r.own
	}
	return !r.allow && o.allow
}

func builtinRules(loopback bool) (rules []rule) {
	for _, b := range builtin {
		if b.class == Loopback && loopback {
			continue
		}
		for _, p := range b.prefixes {
			rules = append(rules, rule{text: p, class: b.class, prefix: netip.MustParsePrefix(p), own: true})
		}
	}
	return rules
}

// words are rules that have a name.
var words = map[string][]string{"all": {"0.0.0.0/0", "::/0"}, "loopback": {"127.0.0.0/8", "::1/128"}}

// parseRules reads a rule: an address or a host's name, each with or without a port, a prefix, or a word.
func parseRules(text string, allow bool) (rules []rule, err error) {
	add := func(p netip.Prefix, name string, port uint16) {
		rules = append(rules, rule{text: text, class: Operator, prefix: p, name: name, port: port, allow: allow})
	}
	s := strings.TrimSpace(text)
	if list := words[strings.ToLower(s)]; list != nil {
		for _, p := range list {
			add(netip.MustParsePrefix(p), "", 0)
		}
		return rules, nil
	}
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a range of addresses such as 10.0.0.0/8", text)
		}
		add(unmapPrefix(p), "", 0)
		return rules, nil
	}
	host, port := s, uint16(0)
	if _, err := netip.ParseAddr(s); err != nil {
		if h, p, err := net.SplitHostPort(s); err == nil {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 {
				return nil, fmt.Errorf("%q has no port from 1 to 65535 behind the colon", text)
			}
			host, port = h, uint16(n)
		}
	}
	if a, ok := literal(host); ok {
		if a.Zone() != "" {
			return nil, fmt.Errorf("%q has a zone; a rule applies to an address on every interface", text)
		}
		a = a.Unmap()
		add(netip.PrefixFrom(a, a.BitLen()), "", port)
		return rules, nil
	}
	host = normal(host)
	if !isName(host) {
		return nil, fmt.Errorf("%q is neither an address, nor a range such as 10.0.0.0/8, nor the name of a host", text)
	}
	add(netip.Prefix{}, host, port)
	return rules, nil
}

// unmapPrefix is the IPv4 range that a range of mapped addresses stands for.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// normal is a name as names are compared.
func normal(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func isName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != "" // 10.0.0.256 is a mistake
}

// literal reads an address in any form that a resolver takes for one: besides the usual ones, those of inet_aton, of
// which 127.1, 0x7f000001, 2130706433 and 0177.0.0.1 are examples.
func literal(host string) (netip.Addr, bool) {
	host = strings.TrimSuffix(host, ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return a, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var n uint64
	for i, part := range parts {
		v, err := number(part)
		if err != nil {
			return netip.Addr{}, false
		}
		if i < len(parts)-1 {
			if v > 255 {
				return netip.Addr{}, false
			}
			n |= v << (24 - 8*i)
			continue
		}
		if v >= 1<<(32-8*i) { // the last one fills what is left
			return netip.Addr{}, false
		}
		n |= v
	}
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), true
}

// number is a part of an address of inet_aton: decimal, octal or hexadecimal.
func number(s string) (uint64, error) {
	switch rest, hex := strings.CutPrefix(strings.ToLower(s), "0x"); {
	case hex && rest == "":
		return 0, nil
	case hex:
		return strconv.ParseUint(rest, 16, 33)
	case len(s) > 1 && s[0] == '0':
		return strconv.ParseUint(s, 8, 33)
	}
	return strconv.ParseUint(s, 10, 33)
}

package egress

import "net/netip"

// The IPv6 prefixes whose addresses stand for an IPv4 one.
var (
	compatible  = netip.MustParsePrefix("::/96")           // RFC 4291, deprecated
	translated  = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765: ::ffff:0:a.b.c.d
	sixToFour   = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo      = netip.MustParsePrefix("2001::/32")       // RFC 4380
	nat64       = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	nat64Local  = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
)

// forms are the addresses that a connection to one may end at: itself, and the IPv4 addresses that it carries. Each of
// them has to be allowed. A mapped address (::ffff:a.b.c.d) is an IPv4 address and nothing else.
func forms(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	if a.Is4() {
		return []netip.Addr{a}
	}
	return append([]netip.Addr{a}, embedded(a)...)
}

func embedded(a netip.Addr) []netip.Addr {
	b := a.As16()
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case a.IsUnspecified() || a.IsLoopback(): // of ::/96 by their form only
		return nil
	case compatible.Contains(a), translated.Contains(a), nat64.Contains(a):
		return []netip.Addr{v4(12)}
	case sixToFour.Contains(a):
		return []netip.Addr{v4(2)}
	case teredo.Contains(a):
		// the server, and the client with its bits inverted
		return []netip.Addr{v4(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case nat64Local.Contains(a):
		return nat64Forms(b)
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214, in any prefix
		return []netip.Addr{v4(12)}
	}
	return nil
}

// nat64Forms reads an address of the local-use NAT64 prefix. A network may have its translator anywhere in that /48,
// and the length of the translator's prefix says where the IPv4 address stands (RFC 6052, 2.2): all places are read
// whose rest is zero, as it has to be. What is left of an address that stands in another place looks like one of
// 0.0.0.0/8; it counts only if there is nothing else.
func nat64Forms(b [16]byte) []netip.Addr {
	var found, rest []netip.Addr
	for _, place := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}} {
		zero := b[8] == 0
		for _, c := range b[place[3]+1:] {
			zero = zero && c == 0
		}
		a := netip.AddrFrom4([4]byte{b[place[0]], b[place[1]], b[place[2]], b[place[3]]})
		switch {
		case thisNetwork.Contains(a):
			rest = append(rest, a)
		case zero || place[3] == 15:
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return rest
	}
	return found
}

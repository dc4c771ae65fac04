package ratelimit

import "net/netip"

// Source is what is counted as one with an address: who has an address of IPv6 has all that begin with the same 64
// bits. That of no address is not valid.
func Source(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	source, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}

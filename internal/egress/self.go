package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// selfRule is what an address of this machine is denied by.
const selfRule = "addresses of this machine"

// self are the addresses of this machine's interfaces: what listens on all of them is reached there as it is at the
// loopback address.
type self struct {
	look func() ([]net.Addr, error)

	mu   sync.Mutex
	at   time.Time
	have map[netip.Addr]bool
}

// selfLasts is for how long the addresses are not looked up again: they change, by a lease or when a tunnel comes up.
const selfLasts = 5 * time.Second

// has says that an address is one of them. If they cannot be looked up, those that were known before count.
func (s *self) has(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have == nil || time.Since(s.at) > selfLasts {
		if all, err := s.look(); err == nil {
			s.at, s.have = time.Now(), make(map[netip.Addr]bool, len(all))
			for _, one := range all {
				if n, ok := one.(*net.IPNet); ok {
					if ip, ok := netip.AddrFromSlice(n.IP); ok && !ip.Unmap().IsLoopback() { // those have rules
						s.have[ip.Unmap()] = true
					}
				}
			}
		}
	}
	return s.have[a]
}

// deny is the rule that denies an address of this machine; nil: it is none, or jobs may use this machine.
func (p *Policy) deny(a netip.Addr) *rule {
	if p.local || !p.self.has(a) {
		return nil
	}
	return &rule{text: selfRule, class: Self, prefix: netip.PrefixFrom(a, a.BitLen()), own: true}
}

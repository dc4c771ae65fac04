package mask

// minRun is the length of the shortest base64 of a value.
const minRun = (MinLength*8 + 5) / 6

// none is in sextets what no character of base64 is.
const none = 0xff

// sextets are the six bits of the characters of both alphabets.
var sextets = func() (t [256]byte) {
	for c := range t {
		t[c] = none
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	t['-'], t['_'] = t['+'], t['/']
	return t
}()

// base64View reads runs of characters of base64. Where in a run the four characters of three bytes begin is not known:
// all four ways are tried at once.
type base64View struct {
	at    int64
	in    bool     // the last character was one of a run
	count int      // of the characters in the run before the last
	bits  uint32   // of the last characters
	nodes [4]int32 // by the place in a run where four characters begin, modulo four
	found spans
}

// read goes on at v.at in a text that begins at base.
func (v *base64View) read(m *Masker, text []byte, base int64) {
	i := int(v.at - base)
	if v.in {
		i = v.run(m, text, base, i)
	}
	for known := i; i < len(text); { // what is between them is base64
		end := min(i+minRun, len(text))
		begin := end
		for begin > known && sextets[text[begin-1]] != none {
			begin--
		}
		if begin > known { // a run that ends before it is too short
			i, known = begin, end
			if end < len(text) || i == end {
				continue
			}
		}
		i = v.run(m, text, base, i)
		known = i
	}
	v.at = base + int64(len(text))
}

// run reads a run to its end, and returns where that is.
func (v *base64View) run(m *Masker, text []byte, base int64, i int) int {
	a, class := m.automaton, &m.class[plain]
	bits, count := v.bits, v.count
	busy := v.nodes != [4]int32{}
	for ; i < len(text); i++ {
		c := sextets[text[i]]
		if c == none {
			v.in, v.nodes = false, [4]int32{}
			return i + 1
		}
		bits = bits<<6 | uint32(c)
		if !v.in {
			v.in, count = true, 0
			continue
		}
		count++
		// With each character, three of the four ways have the next byte.
		if !busy && class[byte(bits>>4)]|class[byte(bits>>2)]|class[byte(bits)] == cold {
			continue
		}
		for n := 1; n <= 3; n++ { // characters of the four before this one
			node := &v.nodes[(count-n)&3]
			*node = a.next(*node, byte(bits>>(6-2*n)))
			if found := a.found[*node]; found > 0 {
				end := base + int64(i)
				v.found.add(begin64(end, n, int(found)), end+1)
			}
		}
		busy = v.nodes != [4]int32{}
	}
	v.bits, v.count = bits, count
	return i
}

// begin64 is where so many bytes begin of which the last is known from the character at a place, which has n before it
// in its four. A character that is shared with the byte before the first is not counted.
func begin64(at int64, n, bytes int) int64 {
	fours := (bytes - n + 2) / 3 // before this one
	return at - int64(n) - 4*int64(fours) + [3]int64{0, 2, 3}[n-bytes+3*fours]
}

// begin is where a value begins that what was read may be the beginning of.
func (v *base64View) begin(m *Masker) int64 {
	begin := v.at
	if !v.in {
		return begin
	}
	for way, node := range v.nodes {
		n := (v.count - way) & 3
		switch {
		case node == 0 && n == 0 && m.sextets[v.bits&63]: // six bits of its first byte
			begin = min(begin, v.at-1)
		case node == 0:
		case n == 0:
			begin = min(begin, begin64(v.at-2, 3, m.automaton.length(node)))
		default:
			begin = min(begin, begin64(v.at-1, n, m.automaton.length(node)))
		}
	}
	return begin
}

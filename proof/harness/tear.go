package harness

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// TearTail damages the end of the log file of a node that does not run, as a disk does that lost its power and lied
// about what it had written, and says how.
func TearTail(dir string, rng *rand.Rand) (how string, err error) {
	path := filepath.Join(dir, datadir.LogFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const page = 4096
	garbage := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	// A page of bbolt begins with its number, its kind, how many elements it has and how many pages follow it.
	number := func(p int) uint64 { return binary.LittleEndian.Uint64(data[p*page:]) }
	kind := func(p int) uint16 { return binary.LittleEndian.Uint16(data[p*page+8:]) }
	follow := func(p int) uint32 { return binary.LittleEndian.Uint32(data[p*page+12:]) }
	// The newer of the two meta pages counts. Behind magic, version, page size, flags, root and free list it has the
	// number of pages in use and that of its transaction.
	meta := func(p, off int) uint64 { return binary.LittleEndian.Uint64(data[p*page+16+off:]) }
	newest := 0
	if meta(1, 48) > meta(0, 48) {
		newest = 1
	}
	switch rng.IntN(6) {
	case 0:
		return "garbage behind the end", os.WriteFile(path, append(data, garbage(page*3/2)...), 0o600)
	case 1:
		pages := 1 + rng.IntN(2)
		return fmt.Sprintf("the last %d pages cut off", pages), os.WriteFile(path, data[:len(data)-pages*page], 0o600)
	case 2, 3: // of those in use: behind them there is room to grow
		pages := 1 + rng.IntN(3)
		return fmt.Sprintf("the last %d pages in use cut off", pages),
			os.WriteFile(path, data[:(int(meta(newest, 40))-pages)*page], 0o600)
	case 4:
		copy(data[newest*page+rng.IntN(8)*512:], make([]byte, 512))
		return fmt.Sprintf("a sector of meta page %d zeroed", newest), os.WriteFile(path, data, 0o600)
	}
	for p := len(data)/page - 1; p > 1; p-- {
		if number(p) == uint64(p) && kind(p) == 2 && follow(p) == 0 { // a leaf by itself
			copy(data[p*page:], garbage(page))
			return fmt.Sprintf("garbage in page %d, the last leaf", p), os.WriteFile(path, data, 0o600)
		}
	}
	return "nothing to damage", nil
}

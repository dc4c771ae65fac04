package keys

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/crypto/scrypt"

	"github.com/carillon-scheduler/carillon/job"
)

// Keys that leave a voter, in a backup, are locked by a passphrase: AES-256-GCM with a key that scrypt makes of it. The
// block says how, and for which cluster; that is a part of what is authenticated.

const (
	blockLocked = "CARILLON LOCKED KEYS"

	headerKDF     = "Kdf"
	headerSalt    = "Salt"
	headerCluster = "Cluster"

	scryptR = 8
	scryptP = 1
	// maxCost bounds what a block can make its reader spend: 1 GiB.
	maxCost Cost = 20

	saltBytes = 16
	maxLocked = 2*maxFile + 4096

	// MinPassphrase is how short a passphrase may be, in bytes.
	MinPassphrase = 12
)

// Cost is what trying one passphrase takes: scrypt's N as a power of two.
type Cost int

// DefaultCost takes 128 MiB and some tenths of a second. Only tests, which protect nothing, lock for less.
const DefaultCost Cost = 17

// Locked are keys that a passphrase opens.
type Locked struct {
	Cluster string // whose they are
	block   *pem.Block
}

// Lock is the authorities for a place where others may read them.
func (s Authorities) Lock(passphrase []byte, cost Cost) ([]byte, error) {
	if len(passphrase) < MinPassphrase {
		return nil, job.Invalid("passphrase", "use a longer one, for example several words",
			"%d bytes are too few: anyone who has the file can try as many as they like; it needs %d", len(passphrase),
			MinPassphrase)
	}
	data, err := s.Encode()
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt) //nolint:errcheck // crypto/rand ends the process rather than fail
	b := &pem.Block{Type: blockLocked, Headers: map[string]string{
		headerKDF:     fmt.Sprintf("scrypt %d %d %d", cost, scryptR, scryptP),
		headerSalt:    base64.StdEncoding.EncodeToString(salt),
		headerCluster: s.Current.Cluster(),
	}}
	aead, err := locker(b, passphrase)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce) //nolint:errcheck // as above
	b.Bytes = aead.Seal(nonce, nonce, data, lockedAs(b))
	clear(data)
	return pem.EncodeToMemory(b), nil
}

// lockedAs is what is authenticated besides the keys.
func lockedAs(b *pem.Block) []byte {
	return []byte(strings.Join([]string{b.Type, b.Headers[headerKDF], b.Headers[headerSalt], b.Headers[headerCluster]},
		"\x00"))
}

func locker(b *pem.Block, passphrase []byte) (cipher.AEAD, error) {
	kind, rest, _ := strings.Cut(b.Headers[headerKDF], " ")
	var n [3]int
	parts := strings.Fields(rest)
	known := kind == "scrypt" && len(parts) == len(n)
	for i := range n {
		if known {
			v, err := strconv.Atoi(parts[i])
			n[i], known = v, err == nil
		}
	}
	if !known || n[0] < 1 || n[0] > int(maxCost) || n[1] != scryptR || n[2] != scryptP {
		return nil, fmt.Errorf("the keys are encrypted in a way that this version does not know (%s): use a newer "+
			"carillon",
			b.Headers[headerKDF])
	}
	salt, err := base64.StdEncoding.DecodeString(b.Headers[headerSalt])
	if err != nil || len(salt) != saltBytes {
		return nil, errors.New("their salt is damaged")
	}
	key, err := scrypt.Key(passphrase, salt, 1<<n[0], n[1], n[2], 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// ReadLocked takes locked keys off the beginning of a stream; nil: it does not begin with any.
func ReadLocked(r *bufio.Reader) (*Locked, error) {
	const begin, end = "-----BEGIN " + blockLocked + "-----", "-----END " + blockLocked + "-----\n"
	if head, _ := r.Peek(len(begin)); string(head) != begin { //nolint:errcheck // what follows is read again
		return nil, nil
	}
	var text []byte
	for !bytes.HasSuffix(text, []byte(end)) {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("the keys are cut off: %w", cutOff(err))
		}
		if text = append(text, line...); len(text) > maxLocked {
			return nil, errors.New("the keys are larger than keys are")
		}
	}
	b, rest := pem.Decode(text)
	if b == nil || len(rest) > 0 {
		return nil, errors.New("the keys are damaged")
	}
	return &Locked{Cluster: b.Headers[headerCluster], block: b}, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Open unlocks keys.
func (l *Locked) Open(passphrase []byte) (Authorities, error) {
	aead, err := locker(l.block, passphrase)
	if err != nil {
		return Authorities{}, err
	}
	n := aead.NonceSize()
	if len(l.block.Bytes) < n {
		return Authorities{}, errors.New("they are cut off")
	}
	data, err := aead.Open(nil, l.block.Bytes[:n], l.block.Bytes[n:], lockedAs(l.block))
	if err != nil {
		return Authorities{}, job.Invalid("passphrase", "give the passphrase that the backup was taken with",
			"the passphrase is wrong, or the keys in the backup are damaged")
	}
	return DecodeAuthorities(data)
}

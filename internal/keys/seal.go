package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// What voters keep in the replicated state and no one else may read is sealed with a key that is derived from the
// cluster key. The sealed form says by which cluster key, so that one that was lost or replaced is told from damage:
//
//	1 byte   the version of this form
//	8 bytes  the id of the cluster key
//	12 bytes a random nonce
//	rest     AES-256-GCM of the length (2 bytes), the value and zeros up to a multiple of sealBlock: how long a value
//	         is, is not shown either

const (
	sealVersion = 1
	sealIDBytes = 8
	sealNonce   = 12
	sealHead    = 1 + sealIDBytes + sealNonce
	sealBlock   = 64

	// MaxSealed is the longest value that can be sealed.
	MaxSealed = 1<<16 - 1
)

// ErrSealedByOther is why a value cannot be opened that was sealed with another cluster key.
var ErrSealedByOther = errors.New("it was sealed with another cluster key")

// KeyID names the cluster key. Nothing about the key follows from it.
func (a *Authority) KeyID() string { return hex.EncodeToString(a.keyID()) }

func (a *Authority) keyID() []byte {
	_, id := a.sealer()
	return id
}

// SealedBy is the id of the cluster key that a value was sealed with; empty: it is no sealed value.
func SealedBy(sealed []byte) string {
	if len(sealed) < sealHead || sealed[0] != sealVersion {
		return ""
	}
	return hex.EncodeToString(sealed[1 : 1+sealIDBytes])
}

// SealMark tells a sealed value from every other one, also of the same value: it is what precedes the encrypted part,
// with the nonce. Nil: it is no sealed value.
func SealMark(sealed []byte) []byte {
	if SealedBy(sealed) == "" {
		return nil
	}
	return sealed[:sealHead:sealHead]
}

// Seal encrypts a value, and binds it to what it is: it opens with the same binding only, so that no one who can write
// the state can put one value in the place of another.
func (a *Authority) Seal(value []byte, binding ...string) ([]byte, error) {
	if len(value) > MaxSealed {
		return nil, fmt.Errorf("a value of %d bytes cannot be sealed", len(value))
	}
	aead, id := a.sealer()
	padded := make([]byte, (2+len(value)+sealBlock-1)/sealBlock*sealBlock)
	binary.BigEndian.PutUint16(padded, uint16(len(value)))
	copy(padded[2:], value)
	defer clear(padded)
	out := make([]byte, sealHead, sealHead+len(padded)+aead.Overhead())
	out[0] = sealVersion
	copy(out[1:], id)
	nonce := out[1+sealIDBytes : sealHead]
	rand.Read(nonce) //nolint:errcheck // crypto/rand ends the process rather than fail
	return aead.Seal(out, nonce, padded, sealedAs(out, binding)), nil
}

// Open decrypts what Seal made with the same binding.
func (a *Authority) Open(sealed []byte, binding ...string) ([]byte, error) {
	switch by := SealedBy(sealed); by {
	case "":
		return nil, errors.New("it is damaged")
	case a.KeyID():
	default:
		return nil, ErrSealedByOther
	}
	aead, _ := a.sealer()
	padded, err := aead.Open(nil, sealed[1+sealIDBytes:sealHead], sealed[sealHead:], sealedAs(sealed, binding))
	if err != nil {
		return nil, errors.New("it is damaged, or it was sealed as something else")
	}
	n := int(binary.BigEndian.Uint16(padded)) // it is what Seal made, so there are two bytes at least
	if n > len(padded)-2 {
		return nil, errors.New("it is damaged")
	}
	return padded[2 : 2+n], nil
}

// sealer is what seals, and the id of its key. It is made once: a leader opens secrets for every run that has some.
func (a *Authority) sealer() (cipher.AEAD, []byte) {
	a.sealOnce.Do(func() {
		block, err := aes.NewCipher(a.Derive("sealed values"))
		if err == nil {
			a.aead, err = cipher.NewGCM(block)
		}
		if err != nil {
			panic(err) // the length of the key is a constant
		}
		a.sealID = a.Derive("cluster key id")[:sealIDBytes]
	})
	return a.aead, a.sealID
}

// sealedAs is the additional data: version and key of the form, and the binding, each with its length before it.
func sealedAs(sealed []byte, binding []string) []byte {
	out := append([]byte(nil), sealed[:1+sealIDBytes]...)
	for _, s := range binding {
		out = binary.BigEndian.AppendUint32(out, uint32(len(s)))
		out = append(out, s...)
	}
	return out
}

// Package sealer binds texts to an API token: the sessions and claims of its workers, and what is given out to be given
// back without being read.
package sealer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"
)

// Sealer seals for one token. It is an HMAC by a key that every leader has, so nothing of it is stored and the next
// leader knows it again.
type Sealer struct {
	Keys  [][]byte // the first seals, and each opens: the cluster's key may have been replaced since
	Token string
}

// Of is the seal of something.
func (s *Sealer) Of(what string, parts ...string) string { return s.by(s.Keys[0], what, parts...) }

// Is says whether something is sealed.
func (s *Sealer) Is(sealed, what string, parts ...string) bool {
	for _, k := range s.Keys {
		if hmac.Equal([]byte(sealed), []byte(s.by(k, what, parts...))) {
			return true
		}
	}
	return false
}

func (s *Sealer) by(key []byte, what string, parts ...string) string {
	h := hmac.New(sha256.New, key)
	s.write(h, what, parts...)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// write writes parts so that they do not run together.
func (s *Sealer) write(h hash.Hash, what string, parts ...string) {
	for _, p := range append([]string{what, s.Token}, parts...) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		h.Write([]byte(p))
	}
}

// Put adds a seal to a text.
func (s *Sealer) Put(what, text string) string { return text + "." + s.Of(what, text) }

// Hide is a text that none but who has the key can read; no two are alike.
func (s *Sealer) Hide(what, text string) string {
	return base64.RawURLEncoding.EncodeToString(s.cipher(s.Keys[0], what).Seal(nil, nil, []byte(text), nil))
}

// Show is what was hidden; false: it was not, or for another use or token.
func (s *Sealer) Show(what, hidden string) (string, bool) {
	b, err := base64.RawURLEncoding.DecodeString(hidden)
	if err != nil {
		return "", false
	}
	for _, k := range s.Keys {
		if text, err := s.cipher(k, what).Open(nil, nil, b, nil); err == nil {
			return string(text), true
		}
	}
	return "", false
}

func (s *Sealer) cipher(key []byte, what string) cipher.AEAD {
	h := hmac.New(sha256.New, key)
	s.write(h, "hide", what)
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil {
		panic(err) // of a key of another length only
	}
	a, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of another cipher only
	}
	return a
}

// Open takes the seal off a text; false: it is not the right one.
func (s *Sealer) Open(what, sealed string) (string, bool) {
	i := strings.LastIndexByte(sealed, '.')
	if i < 0 {
		return "", false
	}
	text := sealed[:i]
	return text, s.Is(sealed[i+1:], what, text)
}

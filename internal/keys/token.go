package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// TokenKind says what a token is for. It is the first part of its text, with the version of the format.
type TokenKind string

// The kinds.
const (
	JoinToken TokenKind = "cj1" // lets a node join the cluster
	APIToken  TokenKind = "ct1" // lets a client call the API
)

var kindNames = map[TokenKind]string{JoinToken: "a join token", APIToken: "an API token"}

// kindRemedies say where to get one.
var kindRemedies = map[TokenKind]string{
	JoinToken: "carillon cluster token create makes one",
	APIToken:  "carillon token create makes one",
}

// String is the kind as errors name it.
func (k TokenKind) String() string { return kindNames[k] }

// Hash is the SHA-256 of a CA's certificate in DER. The holder of a token knows by it which cluster may see the secret.
type Hash [sha256.Size]byte

// strictText reads one text only for each value.
var strictText = base64.RawURLEncoding.Strict()

// noHash is how a token of a cluster without a CA writes the part of the hash.
const noHash = "none"

// String is the hash as tokens have it.
func (h Hash) String() string {
	if h == (Hash{}) {
		return noHash
	}
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// ParseHash reads what String wrote.
func ParseHash(text string) (Hash, error) {
	var h Hash
	if text == noHash {
		return h, nil
	}
	if len(text) == strictText.EncodedLen(len(h)) {
		if n, err := strictText.Decode(h[:], []byte(text)); err == nil && n == len(h) && h != (Hash{}) {
			return h, nil
		}
	}
	return Hash{}, errors.New("it is not the SHA-256 of a certificate in 43 characters of base64url")
}

const (
	secretBytes = 32
	checkBytes  = 4
	idChars     = 12
	// MaxTokenText bounds what is read as a token: texts are about 110 characters long.
	MaxTokenText = 256
)

// ids have lower case letters and digits only: people read them out, and they are parts of paths.
const idAlphabet = "abcdefghijkmnpqrstuvwxyz23456789"

var idText = base32.NewEncoding(idAlphabet).WithPadding(base32.NoPadding)

// Token is one token with its secret. What prints it prints no secret; Text does.
type Token struct {
	Kind   TokenKind
	CA     Hash
	ID     string
	secret [secretBytes]byte
}

// NewToken makes a token with an id and a secret of its own.
func NewToken(kind TokenKind, ca Hash) Token {
	t := Token{Kind: kind, CA: ca}
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // crypto/rand ends the process rather than fail
	t.ID = idText.EncodeToString(id[:])[:idChars]
	rand.Read(t.secret[:]) //nolint:errcheck // as above
	return t
}

// head is all of the text before the secret.
func (t Token) head() string { return string(t.Kind) + "." + t.CA.String() + "." + t.ID + "." }

// Text is the token as its owner keeps it: kind, hash of the CA, id and secret. Four bytes at the end of the secret are
// a checksum over all of it: a text with a typing error is told from one that is not known.
func (t Token) Text() string {
	head := t.head()
	sum := checksum(head, t.secret[:])
	return head + base64.RawURLEncoding.EncodeToString(append(t.secret[:], sum[:]...))
}

func checksum(head string, secret []byte) [checkBytes]byte {
	text := make([]byte, 0, MaxTokenText) // of a size that the compiler knows: every request has a token
	text = append(text, "carillon token checksum\x00"...)
	text = append(text, head...)
	sum := sha256.Sum256(append(text, secret...))
	return [checkBytes]byte(sum[:])
}

// String names the token and hides its secret.
func (t Token) String() string { return t.head() + "…" }

// GoString hides the secret from %#v.
func (t Token) GoString() string { return "keys.Token(" + t.String() + ")" }

// LogValue hides the secret from the log.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText refuses: a token that gets into an answer or a file by accident would be a secret told.
func (t Token) MarshalText() ([]byte, error) {
	return nil, errors.New("a token is written by its Text only")
}

// Sum is the SHA-256 of a token's secret: all that a cluster keeps of it. 256 random bits need no salt and no slow
// hash.
type Sum [sha256.Size]byte

// Sum is what a cluster keeps.
func (t Token) Sum() Sum { return sha256.Sum256(t.secret[:]) }

// Equal compares in constant time.
func (s Sum) Equal(other Sum) bool { return subtle.ConstantTimeCompare(s[:], other[:]) == 1 }

// String is the sum in hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// TokenID says whether a text can be the id of a token.
func TokenID(id string) bool {
	if len(id) != idChars {
		return false
	}
	for i := range len(id) {
		if strings.IndexByte(idAlphabet, id[i]) < 0 {
			return false
		}
	}
	return true
}

// ParseToken reads a token of one kind. Its errors never contain a part of the secret: they end up in logs.
func ParseToken(kind TokenKind, text string) (Token, error) {
	wrong := func(remedy, format string, args ...any) (Token, error) {
		return Token{}, job.Invalid("token", remedy, format, args...)
	}
	text = strings.TrimSpace(text)
	first, rest, dotted := strings.Cut(text, ".")
	given := TokenKind(first)
	switch {
	case text == "":
		return wrong(kindRemedies[kind], "it is empty")
	case len(text) > MaxTokenText:
		return wrong("give the token alone", "%d characters are more than a token has", len(text))
	case !dotted || kindNames[given] == "" && !futureKind(first):
		return wrong(kindRemedies[kind], "it does not begin like a token: %s begins with %q", kind, string(kind)+".")
	case kindNames[given] == "":
		return wrong("use a newer carillon", "this version does not know tokens of the kind %q", first)
	case given != kind:
		return wrong(kindRemedies[kind], "it is %s, but this needs %s, which begins with %q",
			given, kind, string(kind)+".")
	}
	if n := strings.Count(rest, "."); n != 2 {
		return wrong("copy all of it", "it has %d parts instead of 4: %s.<CA hash>.<id>.<secret>", n+2, kind)
	}
	ca, rest, _ := strings.Cut(rest, ".")
	id, secret, _ := strings.Cut(rest, ".")
	t := Token{Kind: kind, ID: id}
	var err error
	if t.CA, err = ParseHash(ca); err != nil {
		return wrong("copy all of it", "the part with the CA's hash is damaged: %v", err)
	}
	if !TokenID(t.ID) {
		return wrong("copy all of it", "the part with the id is damaged: an id has %d lower case letters and digits",
			idChars)
	}
	if want := strictText.EncodedLen(secretBytes + checkBytes); len(secret) != want {
		return wrong("copy all of it", "the secret has %d characters instead of %d", len(secret), want)
	}
	var b [secretBytes + checkBytes]byte
	if n, err := strictText.Decode(b[:], []byte(secret)); err != nil || n != len(b) {
		return wrong("copy all of it", "the secret contains a character that no secret has")
	}
	copy(t.secret[:], b[:])
	sum := checksum(text[:len(text)-len(secret)], t.secret[:])
	if subtle.ConstantTimeCompare(sum[:], b[secretBytes:]) != 1 {
		return wrong("copy it again", "its checksum is wrong: there is a typing error in it")
	}
	return t, nil
}

// futureKind recognises kinds of other versions: c, a letter, a number.
func futureKind(s string) bool {
	if len(s) < 3 || len(s) > 4 || s[0] != 'c' || s[1] < 'a' || s[1] > 'z' {
		return false
	}
	return strings.Trim(s[2:], "0123456789") == ""
}

// ReadTokenFile reads a token from a file that holds nothing else.
func ReadTokenFile(kind TokenKind, path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		remedy := "make it readable for this user"
		if errors.Is(err, fs.ErrNotExist) {
			remedy = "name the file that holds the token"
		}
		return Token{}, job.Invalid("token file", remedy, "%v", err)
	}
	defer f.Close()
	buf := make([]byte, 2*MaxTokenText)
	n := 0
	for n < len(buf) {
		m, err := f.Read(buf[n:])
		n += m
		if err != nil {
			break
		}
	}
	t, err := ParseToken(kind, string(buf[:n]))
	var e *job.Error
	if errors.As(err, &e) {
		return t, job.Invalid("token file", e.Remedy, "%s: %s", path, e.Message)
	}
	return t, err
}

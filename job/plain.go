package job

import (
	"strings"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// Payloads as most of them are, judged without reflection. Each of these says true of a payload in which a
// closer check would find nothing wrong, and false of one that must be looked at closely.

func plainHTTP(data []byte) bool {
	t := jsontext.Reader{B: data}
	var url []byte
	t.Fields(func(key []byte) int {
		switch string(key) {
		case "url":
			url = t.Str()
			return 0
		case "method":
			if m := t.Str(); len(m) > 0 && !isMethod(m) {
				t.Bad = true
			}
			return 1
		case "headers":
			t.Fields(func(name []byte) int {
				t.Str() // without escapes, so it has none of \r, \n and \0
				if !isToken(name) || reservedHeader(name, httpHeaders) {
					t.Bad = true
				}
				return -1
			})
			return 2
		case "body":
			t.Raw()
			return 3
		case "retry_client_errors":
			t.Bool()
			return 4
		case "insecure_skip_verify":
			t.Bool()
			return 5
		}
		return t.Unknown() // expect_status as well
	})
	return t.Ended() && plainURL(url)
}

func plainQueue(data []byte) bool {
	t := jsontext.Reader{B: data}
	named := false
	t.Fields(func(key []byte) int {
		switch string(key) {
		case "queue":
			named = plainName(t.Str())
			return 0
		case "data":
			t.Raw()
			return 1
		}
		return t.Unknown()
	})
	return t.Ended() && named
}

// The sets of ASCII characters that texts of jobs are made of.
const (
	inName  = 1 << iota // what needs no second look in the name of a job or queue
	inToken             // of a header's name (RFC 9110)
	inHost
	inPath // and query; % is not among them
	isUpper
)

var charSets = func() (set [256]uint8) {
	add := func(chars string, in uint8) {
		for i := range len(chars) {
			set[chars[i]] |= in
		}
	}
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	add(digits+lower+upper, inName|inToken|inHost|inPath)
	add(upper, isUpper)
	add("-_.", inName)
	add("!#$%&'*+.^_`|~-", inToken)
	add("-.", inHost)
	add("/._~!$&'()*+,;=:@?-", inPath)
	return set
}()

func allIn(s []byte, set uint8) bool {
	for _, c := range s {
		if charSets[c]&set == 0 {
			return false
		}
	}
	return true
}

func isMethod(s []byte) bool { return len(s) >= 1 && len(s) <= 20 && allIn(s, isUpper) }

func isToken(s []byte) bool { return len(s) > 0 && allIn(s, inToken) }

func plainName(s []byte) bool {
	return len(s) >= 1 && len(s) <= 100 && s[0] != '.' && s[0] != '_' && s[0] != '-' && allIn(s, inName)
}

// plainURL says that a text is an http or https URL of the simple kind.
func plainURL(u []byte) bool {
	rest := u
	switch {
	case len(u) > 7 && string(u[:7]) == "http://":
		rest = u[7:]
	case len(u) > 8 && string(u[:8]) == "https://":
		rest = u[8:]
	default:
		return false
	}
	n := 0
	for n < len(rest) && charSets[rest[n]]&inHost != 0 {
		n++
	}
	if n == 0 {
		return false
	}
	if rest = rest[n:]; len(rest) > 0 && rest[0] == ':' {
		for n = 1; n < len(rest) && rest[n] >= '0' && rest[n] <= '9'; n++ {
		}
		rest = rest[n:]
	}
	return len(rest) == 0 || (rest[0] == '/' || rest[0] == '?') && allIn(rest, inPath)
}

// The headers that Carillon sets itself, besides all that begin with Carillon-, in requests and in messages.
var (
	httpHeaders    = []string{"Idempotency-Key", "Traceparent", "Content-Length", "Transfer-Encoding"}
	messageHeaders = []string{"Idempotency-Key", "Traceparent", "Nats-Msg-Id"}
)

// reservedHeader says that a header is one of those, however it is written.
func reservedHeader(name []byte, reserved []string) bool {
	if len(name) >= 9 && strings.EqualFold(string(name[:9]), "Carillon-") {
		return true
	}
	for _, r := range reserved {
		if len(name) == len(r) && strings.EqualFold(string(name), r) {
			return true
		}
	}
	return false
}

package insight

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
)

// maxShape bounds the text that a group of errors is known by.
const maxShape = 300

// shapes are what differs between errors of one cause, and what is shown instead. The order matters: what is quoted may
// hold all others. Numbers, which are a part of most, come last.
var shapes = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`"), "<text>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?`), "<time>"},
	{regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\](?::\d+)?`), "<addr>"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b` +
		`|\b[0-9a-fA-F]{12,}\b`), "<hex>"},
}

// numbers are what is left of them, and codes with the word before them: how a command or a target ended is a cause.
var numbers = regexp.MustCompile(`(?i)\b(?:exit (?:status|code)|status(?: code)?|signal|http)(?:: ?| |=)\d{1,3}\b` +
	`|\d+(?:\.\d+)?`)

func maskNumber(s string) string {
	if s[0] >= '0' && s[0] <= '9' {
		return "<n>"
	}
	return s
}

// Shape is an error without what differs from one run to the next: numbers, hexadecimal text, addresses, times and what
// is quoted. Codes ("exit status 3", "status 500") stay. Errors of one cause have one shape.
func Shape(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > 4*maxShape {
		text = text[:4*maxShape]
	}
	for _, s := range shapes {
		text = s.what.ReplaceAllLiteralString(text, s.as)
	}
	text = numbers.ReplaceAllStringFunc(text, maskNumber)
	if len(text) > maxShape {
		text = text[:maxShape]
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}

// GroupKey names a group of dead letters: those of one namespace that died of one cause.
func GroupKey(namespace string, reason job.Reason, shape string) string {
	sum := sha256.Sum256([]byte(namespace + "\x00" + reason.String() + "\x00" + shape))
	return hex.EncodeToString(sum[:8])
}

package crontab

import "strings"

// readVariable reads NAME = value as cron does: either side may be quoted, blanks around the sign are skipped, and
// nothing is expanded. A line that is none is an entry.
func readVariable(s string) (name, value string, ok bool) {
	name, rest, ok := quotedOr(s, func(s string) int { return strings.IndexAny(s, " \t=") })
	if !ok {
		return "", "", false
	}
	rest = strings.TrimLeft(rest, " \t")
	if rest == "" || rest[0] != '=' || strings.Contains(name, "=") {
		return "", "", false
	}
	rest = strings.TrimLeft(rest[1:], " \t")
	value, after, ok := quotedOr(rest, func(string) int { return -1 })
	if !ok || strings.Trim(after, " \t") != "" {
		return "", "", false
	}
	if len(rest) > 0 && rest[0] != '\'' && rest[0] != '"' {
		value = strings.TrimRight(value, " \t")
	}
	return name, value, true
}

// quotedOr takes a text in quotes, or up to where end says (-1: all of it).
func quotedOr(s string, end func(string) int) (text, rest string, ok bool) {
	if s != "" && (s[0] == '\'' || s[0] == '"') {
		i := strings.IndexByte(s[1:], s[0])
		if i < 0 {
			return "", "", false
		}
		return s[1 : i+1], s[i+2:], true
	}
	i := end(s)
	if i < 0 {
		return s, "", true
	}
	return s[:i], s[i:], true
}

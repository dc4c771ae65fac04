package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/internal/mask"
)

// A job refers to a secret by secret://NAME in one of its texts. The definition keeps the reference; the leader puts
// the value in its place when it hands a run to a worker.

// SecretScheme begins a reference.
const SecretScheme = "secret://"

// The bounds of a secret.
const (
	MinSecretBytes = mask.MinLength // shorter values cannot be masked
	MaxSecretBytes = 8 << 10
	MaxSecretLines = 256 // each is masked in what runs leave behind
	MaxSecretHosts = 16
	MaxSecretRefs  = 32 // of one job
)

var secretRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// SecretName says whether a text can be the name of a secret.
func SecretName(s string) bool { return secretRE.MatchString(s) }

// SecretPlace says how a secret is written into a field of a payload.
type SecretPlace uint8

// The places.
const (
	SecretInText SecretPlace = iota + 1 // the values of an object of texts, such as an environment
	SecretInHeaders
	SecretInURL  // path and query
	SecretInData // any JSON: all texts in it
)

// mayRefer says whether a normalized payload can have references at all, without reading it.
func mayRefer(payload []byte) bool { return bytes.Contains(payload, []byte(SecretScheme)) }

// spellRefs writes references without escapes, which JSON allows for slashes and for every letter: so they are found
// without reading all of a payload.
func spellRefs(payload []byte) []byte {
	if !bytes.Contains(payload, []byte(`\/`)) && !bytes.Contains(payload, []byte(`\u`)) {
		return payload
	}
	spelled, err := eachText(payload, func(t payloadText) (string, bool, error) {
		return t.text, strings.Contains(t.text, SecretScheme), nil
	})
	if err != nil {
		return payload // it is refused
	}
	return spelled
}

// SecretRefs are the names of the secrets that the payload refers to, ordered. It finds the same in any bytes on every
// replica.
func (s *Spec) SecretRefs() []string {
	if !mayRefer(s.Payload) {
		return nil
	}
	var names []string
	_, _ = eachText(s.Payload, func(t payloadText) (string, bool, error) { //nolint:errcheck // it is in all checks
		names = append(names, refsIn(t.text)...)
		return "", false, nil
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// WebhookSecrets are the names of the secrets that the URL of the webhook refers to.
func (n *Notify) WebhookSecrets() []string {
	if n == nil || !strings.Contains(n.Webhook, SecretScheme) {
		return nil
	}
	return refsIn(n.Webhook)
}

// SecretField is the first field that refers to a secret.
func (s *Spec) SecretField(name string) (field string) {
	_, _ = eachText(s.Payload, func(t payloadText) (string, bool, error) { //nolint:errcheck // it is in all checks
		if field == "" && slices.Contains(refsIn(t.text), name) {
			field = t.path()
		}
		return "", false, nil
	})
	return cmp.Or(field, "payload")
}

// refsIn are the names in a text; one that is not a name is there as it is.
func refsIn(text string) (names []string) {
	replaceRefs(text, func(_ int, name string) string {
		names = append(names, name)
		return ""
	})
	return names
}

// replaceRefs replaces the references in a text. A name ends where a character follows that names do not have.
func replaceRefs(text string, with func(at int, name string) string) string {
	var b strings.Builder
	for at := 0; ; {
		i := strings.Index(text[at:], SecretScheme)
		if i < 0 {
			b.WriteString(text[at:])
			return b.String()
		}
		begin := at + i + len(SecretScheme)
		end := begin
		for end < len(text) && (text[end] == '-' || text[end] == '_' || text[end] >= '0' && text[end] <= '9' ||
			text[end] >= 'a' && text[end] <= 'z' || text[end] >= 'A' && text[end] <= 'Z') {
			end++
		}
		b.WriteString(text[at : at+i])
		b.WriteString(with(at+i, text[begin:end]))
		at = end
	}
}

// payloadText is one text of a payload.
type payloadText struct {
	field string // of the payload
	inner string // the name in an object that is the field, if the text is a value there
	depth int    // 1: it is the field itself, or its name
	name  bool   // it is the name of a field or in an object
	text  string
}

// path is the text's field, as errors name it.
func (t payloadText) path() string {
	if t.inner != "" && !t.name {
		return "payload." + t.field + "." + t.inner
	}
	return "payload." + t.field
}

var errPayloadText = errors.New("the payload is not JSON")

// eachText goes through the texts of a payload and puts in their places what fn returns with true. What it leaves alone
// stays as it is written, byte for byte.
func eachText(raw []byte, fn func(payloadText) (string, bool, error)) ([]byte, error) {
	var out []byte
	done := 0
	var open []byte // the brackets that are open
	expectName := false
	at := payloadText{}
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '{', '[':
			open = append(open, c)
			expectName = c == '{'
		case '}', ']':
			if len(open) == 0 {
				return nil, errPayloadText
			}
			open = open[:len(open)-1]
			expectName = false
		case ',':
			expectName = len(open) > 0 && open[len(open)-1] == '{'
		case '"':
			end := i + 1
			for end < len(raw) && raw[end] != '"' {
				if raw[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(raw) {
				return nil, errPayloadText
			}
			literal := raw[i : end+1]
			text := string(literal[1 : len(literal)-1])
			if strings.Contains(text, `\`) && json.Unmarshal(literal, &text) != nil {
				return nil, errPayloadText
			}
			at.text, at.depth, at.name = text, len(open), expectName
			if expectName && len(open) == 1 {
				at.field, at.inner = text, ""
			} else if expectName && len(open) == 2 {
				at.inner = text
			}
			expectName = false
			with, replace, err := fn(at)
			if err != nil {
				return nil, err
			}
			if replace {
				out = append(append(out, raw[done:i]...), quote(with)...)
				done = end + 1
			}
			i = end
		}
	}
	if done == 0 {
		return raw, nil
	}
	return append(out, raw[done:]...), nil
}

func quote(s string) []byte {
	b, err := jsontext.Marshal(s)
	if err != nil {
		return []byte(`""`) // a string is always encoded
	}
	return b
}

// checkSecrets says what is wrong with the references of a payload. Whether the secrets are there is not known here.
func checkSecrets(s *Spec) *Error {
	if !mayRefer(s.Payload) {
		return nil
	}
	places := kindOf(s.Type).Secrets
	var bad *Error
	found := false
	_, err := eachText(s.Payload, func(t payloadText) (string, bool, error) {
		if bad == nil && strings.Contains(t.text, SecretScheme) {
			found = true
			bad = checkPlace(places, t)
		}
		return "", false, nil
	})
	if n := len(s.SecretRefs()); bad == nil && n > MaxSecretRefs {
		return Invalid("payload", "put what belongs together into one secret",
			"the job refers to %d secrets, at most %d are allowed", n, MaxSecretRefs)
	}
	if bad != nil || !found || err != nil { // the check of the payload itself says what is not JSON
		return bad
	}
	if s.Type == TypeHTTP {
		var p HTTPPayload
		if decodePayload(s.Payload, &p) == nil && p.InsecureSkipVerify {
			return Invalid("payload.insecure_skip_verify", "leave it out, and make the nodes trust the target's CA",
				"a secret is not sent to a target whose certificate is not verified")
		}
	}
	return nil
}

func checkPlace(places map[string]SecretPlace, t payloadText) *Error {
	field := t.path()
	for _, name := range refsIn(t.text) {
		if !SecretName(name) {
			return Invalid(field, "use secret://NAME with up to 64 letters, digits, - and _",
				"%q is not the name of a secret", name)
		}
	}
	place := places[t.field]
	switch {
	case place == 0 || t.name && place != SecretInData:
		var fields []string
		for f := range places {
			fields = append(fields, f)
		}
		slices.Sort(fields)
		return Invalid(field, "refer to the secret in "+strings.Join(fields, ", "),
			"a secret cannot be referred to here")
	case place == SecretInHeaders && strings.EqualFold(t.inner, "Host"):
		return Invalid(field, "write out the host", "a host cannot be a secret")
	case place == SecretInURL:
		return checkSecretURL(field, t.text)
	}
	return nil
}

// checkSecretURL holds references to the path and the query of a URL: what decides where a request goes is seen by
// everybody who sees the job.
func checkSecretURL(field, text string) *Error {
	if !strings.Contains(text, SecretScheme) {
		return nil
	}
	_, rest, ok := strings.Cut(text, "://")
	begin := len(text) - len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		begin += i
	} else {
		begin = len(text)
	}
	fragment := len(text)
	if i := strings.IndexByte(text, '#'); i >= 0 {
		fragment = i
	}
	var bad *Error
	replaceRefs(text, func(at int, name string) string {
		if !SecretName(name) {
			bad = Invalid(field, "use secret://NAME with up to 64 letters, digits, - and _",
				"%q is not the name of a secret", name)
		}
		if !ok || at < begin || at > fragment {
			bad = Invalid(field, "write out scheme and host, as in https://example.com/hook/secret://NAME",
				"a secret can only be referred to in the path or the query of a URL")
		}
		return ""
	})
	return bad
}

// ExpandSecrets puts the values of secrets into a payload. Its error never has a value in it.
func (s *Spec) ExpandSecrets(value func(name string) string) ([]byte, error) {
	kind := kindOf(s.Type)
	if kind == nil {
		return nil, fmt.Errorf("there is no type %q", s.Type)
	}
	size := 0
	return eachText(s.Payload, func(t payloadText) (string, bool, error) {
		if !strings.Contains(t.text, SecretScheme) {
			return "", false, nil
		}
		if bad := checkPlace(kind.Secrets, t); bad != nil {
			return "", false, bad
		}
		text, err := expandText(kind.Secrets[t.field], t.text, func(name string) string {
			v := value(name)
			if size += len(v); size > MaxPayload {
				return ""
			}
			return v
		})
		if size > MaxPayload {
			err = fmt.Errorf("the values of its secrets would make the payload longer than %d bytes", 2*MaxPayload)
		}
		return text, true, err
	})
}

// ExpandURL puts the values of secrets into the path and query of a URL.
func ExpandURL(text string, value func(name string) string) (string, error) {
	if bad := checkSecretURL("url", text); bad != nil {
		return "", bad
	}
	return expandText(SecretInURL, text, value)
}

func expandText(place SecretPlace, text string, value func(name string) string) (string, error) {
	query := len(text)
	if i := strings.IndexByte(text, '?'); i >= 0 {
		query = i
	}
	var bad error
	out := replaceRefs(text, func(at int, name string) string {
		v := value(name)
		switch {
		case place == SecretInHeaders && strings.ContainsFunc(v, func(r rune) bool {
			return r < ' ' && r != '\t' || r == 0x7f
		}):
			bad = fmt.Errorf("the secret %q contains a line break or another control character, which a header "+
				"cannot contain",
				name)
		case place == SecretInURL && at > query:
			return mask.Percent(v, "-_.~")
		case place == SecretInURL:
			return mask.Percent(v, "-_.~/") // the last parts of a webhook's path are often one secret
		}
		return v
	})
	return out, bad
}

// Targets are the hosts that a run talks to, as host:port; ok is false if the job does not say them.
func (s *Spec) Targets() (hosts []string, ok bool) {
	switch s.Type {
	case TypeHTTP:
		var p HTTPPayload
		if json.Unmarshal(s.Payload, &p) != nil {
			return nil, false
		}
		return p.targets()
	case TypeMessage:
		var p MessagePayload
		if json.Unmarshal(s.Payload, &p) != nil || !strings.Contains(p.Broker, "://") {
			return nil, false // only its workers know what a name stands for
		}
		b, err := ParseBroker(p.Broker)
		return b.Hosts, err == nil && b.Kind != BrokerKafka // where the messages go, its brokers say
	}
	return nil, false
}

// targets are the URL's, and the one that a header Host names: one address may serve many.
func (p *HTTPPayload) targets() (hosts []string, ok bool) {
	to, ok := urlTarget(p.URL)
	if !ok {
		return nil, false
	}
	_, port, _ := net.SplitHostPort(to) //nolint:errcheck // it was made just now
	hosts = []string{to}
	for name, value := range p.Headers {
		if !strings.EqualFold(name, "Host") {
			continue
		}
		named := &url.URL{Host: value}
		if named.Hostname() == "" {
			return nil, false
		}
		hosts = append(hosts, net.JoinHostPort(named.Hostname(), cmp.Or(named.Port(), port)))
	}
	return hosts, true
}

// Targets are where the webhook of a job is, if it is a URL.
func (n *Notify) Targets() (hosts []string, ok bool) {
	host, ok := urlTarget(n.Webhook)
	return []string{host}, ok
}

func urlTarget(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", false
	}
	return HostPort(u), true
}

// HostPort is where a URL leads, with its port.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// CheckSecretHost says whether a text can be one of a secret's hosts: a name or an address, with a port or without.
func CheckSecretHost(s string) bool {
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		if _, err := brokerHost(s, "1"); err != nil || p == "" {
			return false
		}
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return host != "" && len(host) <= 253 && !strings.ContainsAny(host, "/@[]*?# \t\r\n\x00%\"\\,") &&
		(!strings.Contains(host, ":") || net.ParseIP(host) != nil)
}

// SecretMayGoTo says whether a secret's hosts, if it has any, allow a target, which is given as host:port.
func SecretMayGoTo(hosts []string, target string) bool {
	if len(hosts) == 0 {
		return true
	}
	name, port, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		if host, p, err := net.SplitHostPort(h); err == nil {
			return strings.EqualFold(host, name) && p == port
		}
		return strings.EqualFold(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]"), name)
	})
}

// Warnings are what is allowed and better done otherwise.
func (s *Spec) Warnings() (out []string) {
	add := func(field, remedy, format string, args ...any) {
		out = append(out, Invalid(field, remedy, format, args...).Error())
	}
	if s.Type != TypeHTTP {
		return nil
	}
	var p HTTPPayload
	if json.Unmarshal(s.Payload, &p) != nil {
		return nil
	}
	const remedy = "store it with `carillon secret set NAME`, and write secret://NAME here"
	for name, v := range p.Headers {
		if strings.EqualFold(name, "Authorization") && !strings.Contains(v, SecretScheme) {
			add("payload.headers."+name, remedy, "this value is stored and shown in plain text")
		}
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return out
	}
	if _, has := u.User.Password(); has {
		add("payload.url", "store it with `carillon secret set NAME`, and send it in the header Authorization",
			"the password in it is stored and shown in plain text")
	}
	if u.Scheme == "http" && len(s.SecretRefs()) > 0 {
		add("payload.url", "use https://", "the secret is sent without TLS, so others can read it on the way")
	}
	return out
}

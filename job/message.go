package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MessagePayload is the payload of a message job.
type MessagePayload struct {
	Broker    string            `json:"broker"` // a name that workers know, or a URL without secrets
	Subject   string            `json:"subject,omitempty"`
	JetStream bool              `json:"jetstream,omitempty"`
	Topic     string            `json:"topic,omitempty"`
	Key       string            `json:"key,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Data      json.RawMessage   `json:"data,omitempty"` // a JSON string is sent as it is, anything else as JSON
}

// The kinds of broker.
const (
	BrokerNATS  = "nats"
	BrokerKafka = "kafka"
)

// Broker is where messages go, taken apart.
type Broker struct {
	Kind    string   // BrokerNATS or BrokerKafka
	TLS     bool     // from the first byte; NATS servers may ask for it later by themselves
	Hosts   []string // host:port
	User    *url.Userinfo
	Options map[string]string
}

// brokerOptions are what may follow the ? of a broker's URL.
var brokerOptions = map[string][]string{
	BrokerNATS:  {"ca", "cert", "creds", "key", "nkey"},
	BrokerKafka: {"ca", "cert", "key", "sasl"},
}

var defaultPorts = map[string]string{BrokerNATS: "4222", BrokerKafka: "9092"}

const brokerForm = "use nats://HOST:4222 or kafka://HOST:9092, several hosts separated by commas, and +tls after the " +
	"scheme for TLS"

// ParseBroker reads the URL of a broker: nats:// or kafka://, with +tls after it for TLS, a user and password, hosts
// separated by commas, and options. net/url would refuse the list of hosts. The URL is not in the error: it may have a
// password in it.
func ParseBroker(s string) (Broker, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	b := Broker{Options: map[string]string{}}
	b.Kind, b.TLS = strings.CutSuffix(strings.ToLower(scheme), "+tls")
	if !ok || b.Kind != BrokerNATS && b.Kind != BrokerKafka {
		return b, fmt.Errorf("this is not the URL of a broker: %s", brokerForm)
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest = strings.TrimSuffix(rest, "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		u, err := url.Parse("x://" + rest[:i] + "@h")
		if err != nil {
			return b, fmt.Errorf("the user and password of the broker cannot be read: " +
				"percent-encode special characters")
		}
		b.User, rest = u.User, rest[i+1:]
	}
	for h := range strings.SplitSeq(rest, ",") {
		host, err := brokerHost(h, defaultPorts[b.Kind])
		if err != nil {
			return b, err
		}
		b.Hosts = append(b.Hosts, host)
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return b, fmt.Errorf("the options of the broker cannot be read: percent-encode special characters")
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if !slices.Contains(brokerOptions[b.Kind], name) || len(options[name]) != 1 {
			return b, fmt.Errorf("%q is not an option of a %s broker, or is given twice: use %s", name, b.Kind,
				strings.Join(brokerOptions[b.Kind], ", "))
		}
		b.Options[name] = options[name][0]
	}
	return b, nil
}

func brokerHost(s, port string) (string, error) {
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if host == "" || n == 0 || err != nil || strings.ContainsAny(host, "/@[] \t#%") || strings.Contains(host, ":") &&
		net.ParseIP(host) == nil {
		return "", fmt.Errorf("%q is not a host and port: %s", s, brokerForm)
	}
	return net.JoinHostPort(host, port), nil
}

// String is the broker without what is secret.
func (b Broker) String() string {
	scheme := b.Kind
	if b.TLS {
		scheme += "+tls"
	}
	return scheme + "://" + strings.Join(b.Hosts, ",")
}

var (
	brokerRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	topicRE  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

// IsBrokerName says whether a text can be the name of a broker.
func IsBrokerName(s string) bool { return brokerRE.MatchString(s) }

// CheckMessage checks the payload of a message job.
func CheckMessage(data []byte) *Error {
	var p MessagePayload
	if err := decodePayload(data, &p); err != nil {
		return err
	}
	kind, err := checkBroker(p.Broker)
	if err != nil {
		return err
	}
	switch {
	case (p.Subject == "") == (p.Topic == ""):
		return Invalid("payload.subject", "set subject (NATS) or topic (Kafka), not both",
			"a message needs a subject or a topic")
	case kind == BrokerNATS && p.Topic != "":
		return Invalid("payload.topic", "set subject instead", "a NATS broker has no topics")
	case kind == BrokerKafka && p.Subject != "":
		return Invalid("payload.subject", "set topic instead", "a Kafka broker has no subjects")
	case p.Topic != "" && (!topicRE.MatchString(p.Topic) || p.Topic == "." || p.Topic == ".."):
		return Invalid("payload.topic", "use letters, digits, - _ .", "%q is not a valid Kafka topic", p.Topic)
	case p.Subject != "" && !isSubject(p.Subject):
		return Invalid("payload.subject", "use words separated by dots, without spaces and without * and >",
			"%q is not a subject that can be published to", p.Subject)
	case p.Topic != "" && p.JetStream:
		return Invalid("payload.jetstream", "leave it out", "JetStream is a feature of NATS")
	case p.Subject != "" && p.Key != "":
		return Invalid("payload.key", "leave it out, or put it into the subject", "NATS messages have no key")
	}
	return checkMessageHeaders(p.Headers)
}

// checkBroker checks how a job names its broker. What it writes is stored and shown, so it may not be a secret.
func checkBroker(s string) (kind string, _ *Error) {
	if !strings.Contains(s, "://") {
		if !IsBrokerName(s) {
			if s == "" {
				return "", Invalid("payload.broker",
					"name one that the workers know by --broker, or use a URL such as nats://host:4222 or "+
						"kafka://host:9092", "a message needs a broker")
			}
			return "", Invalid("payload.broker",
				"name one that the workers know by --broker, or use a URL such as nats://host:4222 or "+
					"kafka://host:9092", "%q is not the name of a broker", s)
		}
		return "", nil
	}
	b, err := ParseBroker(s)
	switch {
	case err != nil:
		return "", Invalid("payload.broker", "", "%v", err)
	case b.User != nil || len(b.Options) > 0:
		return "", Invalid("payload.broker",
			"start the nodes with --broker NAME=URL or CARILLON_BROKERS, and use the name here",
			"a job is stored and shown in plain text: do not put a user, password or file into it")
	}
	return b.Kind, nil
}

func isSubject(s string) bool {
	if len(s) > 1024 {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || token == "*" || token == ">" ||
			strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return false
		}
	}
	return true
}

func checkMessageHeaders(h map[string]string) *Error {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if reservedHeader([]byte(name), messageHeaders) {
			return Invalid("payload.headers", "remove it", "the header %s is set by Carillon",
				http.CanonicalHeaderKey(name))
		}
		if !isToken([]byte(name)) || strings.ContainsAny(h[name], "\r\n\x00") {
			return Invalid("payload.headers", "", "%q: %q is not a valid header", name, h[name])
		}
	}
	return nil
}

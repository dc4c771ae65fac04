// Package otlp exports spans over OTLP/HTTP, in protobuf. It is small because it does little: what the SDK of
// OpenTelemetry adds are spans that live in contexts and ids that are random, and its exporter brings gRPC along.
package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
)

// Config says where spans go, and of which runs. FromEnv reads it; nil: nowhere.
type Config struct {
	URL      string
	Headers  http.Header // with what the receiver asks for, such as a token
	Timeout  time.Duration
	Plain    bool // not compressed
	TLS      *tls.Config
	Ratio    float64 // how many of all traces are recorded, 0 to 1
	Resource []Attr  // what the spans are of

	// Bounds; zero values take the defaults.
	Queue  int           // spans that wait
	Batch  int           // spans that are sent together
	Delay  time.Duration // how long a span waits for others
	Retry  time.Duration // first pause after a failure; each is twice the one before
	GiveUp time.Duration // after this long a batch is dropped
}

// Sampler decides which runs are traced; nil without tracing.
func (c *Config) Sampler() *traceid.Sampler {
	if c == nil {
		return nil
	}
	return traceid.NewSampler(c.Ratio)
}

const (
	general  = "OTEL_EXPORTER_OTLP_"
	specific = "OTEL_EXPORTER_OTLP_TRACES_"

	envEndpoint   = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envSampler    = "OTEL_TRACES_SAMPLER"
	envSamplerArg = "OTEL_TRACES_SAMPLER_ARG"
	envResource   = "OTEL_RESOURCE_ATTRIBUTES"
)

// FromEnv reads the environment that OpenTelemetry specifies. It is nil if nothing is to be exported: no endpoint is
// set, or tracing is switched off. A value that makes no sense is an error: spans that go nowhere are noticed when they
// are needed.
func FromEnv(env func(string) string) (*Config, error) {
	set := func(name string) (string, string) { // the variable that counts, and its value
		if v := strings.TrimSpace(env(specific + name)); v != "" {
			return specific + name, v
		}
		return general + name, strings.TrimSpace(env(general + name))
	}
	off, err := flag(env, "OTEL_SDK_DISABLED")
	if err != nil {
		return nil, err
	}
	from, endpoint := set("ENDPOINT")
	if off || endpoint == "" {
		return nil, nil
	}
	switch v := strings.TrimSpace(env("OTEL_TRACES_EXPORTER")); v {
	case "", "otlp":
	case "none":
		return nil, nil
	default:
		return nil, job.Invalid("OTEL_TRACES_EXPORTER", "use otlp or none", "there is no exporter %q", v)
	}
	c := &Config{Timeout: 10 * time.Second}
	if c.URL, err = endpointURL(from, endpoint); err != nil {
		return nil, err
	}
	if from, v := set("PROTOCOL"); v != "" && v != "http/protobuf" {
		return nil, job.Invalid(from, "use http/protobuf, and the receiver's port for it, which usually is 4318",
			"the protocol %q is not supported", v)
	}
	if from, v := set("TIMEOUT"); v != "" {
		ms, err := strconv.ParseUint(v, 10, 31)
		if err != nil || ms == 0 {
			return nil, job.Invalid(from, "use milliseconds, such as 10000", "%q is not a time", v)
		}
		c.Timeout = time.Duration(ms) * time.Millisecond
	}
	switch from, v := set("COMPRESSION"); v {
	case "", "gzip":
	case "none":
		c.Plain = true
	default:
		return nil, job.Invalid(from, "use gzip or none", "there is no compression %q", v)
	}
	if c.Headers, err = headers(set("HEADERS")); err != nil {
		return nil, err
	}
	if c.TLS, err = tlsConfig(set); err != nil {
		return nil, err
	}
	if c.Ratio, err = ratio(env); err != nil {
		return nil, err
	}
	if c.Resource, err = resource(env); err != nil {
		return nil, err
	}
	return c, nil
}

func flag(env func(string) string, name string) (bool, error) {
	switch v := strings.ToLower(strings.TrimSpace(env(name))); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, job.Invalid(name, "use true or false", "%q is neither", v)
	}
}

// endpointURL is where spans are posted to: the path is added to an endpoint for everything.
func endpointURL(from, endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// Not the value: it may have a password in it.
		return "", job.Invalid(from, "use a URL such as http://collector:4318",
			"its value is not an http or https URL")
	}
	if from == envEndpoint {
		u = u.JoinPath("v1", "traces")
	} else if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), nil
}

// pairs reads a list k=v,k=v whose values are percent-encoded.
func pairs(from, list string) (keys, values []string, err error) {
	for pair := range strings.SplitSeq(list, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		k = strings.TrimSpace(k)
		value, bad := url.PathUnescape(strings.TrimSpace(v))
		if !ok || k == "" || bad != nil {
			// Not the text: headers have tokens.
			return nil, nil, job.Invalid(from, "use name=value,name=value, with %2C for a comma in a value",
				"entry %d is not name=value", len(keys)+1)
		}
		keys, values = append(keys, k), append(values, value)
	}
	return keys, values, nil
}

func headers(from, list string) (http.Header, error) {
	keys, values, err := pairs(from, list)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	for i, k := range keys {
		if strings.ContainsAny(k, " \t\r\n:\"(),/;<=>?@[\\]{}") || strings.ContainsAny(values[i], "\r\n\x00") {
			return nil, job.Invalid(from, "use names and values of HTTP headers", "entry %d cannot be a header", i+1)
		}
		h.Set(k, values[i])
	}
	return h, nil
}

func tlsConfig(set func(string) (string, string)) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if from, path := set("CERTIFICATE"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, job.Invalid(from, "give a file that this user can read", "%v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, job.Invalid(from, "give a file with certificates in PEM", "%s has no certificate", path)
		}
	}
	fromCert, cert := set("CLIENT_CERTIFICATE")
	fromKey, key := set("CLIENT_KEY")
	switch {
	case cert == "" && key == "":
		return c, nil
	case cert == "":
		return nil, job.Invalid(fromCert, "set it, or unset "+fromKey, "the client's key has no certificate")
	case key == "":
		return nil, job.Invalid(fromKey, "set it, or unset "+fromCert, "the client's certificate has no key")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, job.Invalid(fromCert, "give files in PEM that belong together", "%v", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// ratio is how many runs are traced. A run has no parent, so that samplers that go by theirs are what they are for
// roots.
func ratio(env func(string) string) (float64, error) {
	arg := strings.TrimSpace(env(envSamplerArg))
	switch v := strings.TrimSpace(env(envSampler)); strings.TrimPrefix(v, "parentbased_") {
	case "always_on":
		return 1, nil
	case "always_off":
		return 0, nil
	case "", "traceidratio":
	default:
		return 0, job.Invalid(envSampler, "use always_on, always_off or traceidratio", "there is no sampler %q", v)
	}
	if arg == "" {
		return 1, nil
	}
	r, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(r >= 0 && r <= 1) {
		return 0, job.Invalid(envSamplerArg, "use 0 to 1, such as 0.01 for one run in a hundred",
			"%q is not a share of all runs", arg)
	}
	return r, nil
}

func resource(env func(string) string) ([]Attr, error) {
	keys, values, err := pairs(envResource, env(envResource))
	if err != nil {
		return nil, err
	}
	const service = "service.name"
	name := strings.TrimSpace(env("OTEL_SERVICE_NAME"))
	if i := slices.Index(keys, service); i >= 0 {
		name = cmp.Or(name, values[i])
	}
	out := []Attr{String(service, cmp.Or(name, "carillon"))}
	for i, k := range keys {
		if k != service {
			out = append(out, String(k, values[i]))
		}
	}
	return out, nil
}

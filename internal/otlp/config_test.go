package otlp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func fromEnv(vars map[string]string) (*Config, error) {
	return FromEnv(func(name string) string { return vars[name] })
}

func TestFromEnv(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  map[string]string
		want string // "" off
	}{
		"nothing":      {nil, ""},
		"sampler only": {map[string]string{"OTEL_TRACES_SAMPLER_ARG": "0.5"}, ""},
		"disabled":     {map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, ""},
		"no exporter":  {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""},
		"an endpoint for everything": {map[string]string{endpoint: "http://c:4318"},
			"http://c:4318/v1/traces map[] 10s 1 service.name=carillon"},
		"with a path": {map[string]string{endpoint: "https://c/otlp/", "OTEL_SDK_DISABLED": "false"},
			"https://c/otlp/v1/traces map[] 10s 1 service.name=carillon"},
		"one for traces": {map[string]string{endpoint: "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1/x"},
			"http://t:1/x map[] 10s 1 service.name=carillon"},
		"all of it": {map[string]string{endpoint: "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "1500",
			"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x%2Cy, X-Org=1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
			"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25", "OTEL_SERVICE_NAME": "cron",
			"OTEL_RESOURCE_ATTRIBUTES": "service.name=no,deployment.environment.name=a%20b"},
			"http://c:4318/v1/traces map[Authorization:[Bearer x,y] X-Org:[1]] 1.5s 0.25 service.name=cron,deployment.environment.name=a b"},
		"that of traces wins": {map[string]string{endpoint: "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2",
			"OTEL_EXPORTER_OTLP_HEADERS": "a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2"},
			"http://c:4318/v1/traces map[B:[2]] 2ms 1 service.name=carillon"},
		"no sampler named": {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
			"http://c:4318/v1/traces map[] 10s 0.5 service.name=carillon"},
		"never": {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "always_off"},
			"http://c:4318/v1/traces map[] 10s 0 service.name=carillon"},
		"service by attribute": {map[string]string{endpoint: "http://c:4318", "OTEL_RESOURCE_ATTRIBUTES": "service.name=jobs"},
			"http://c:4318/v1/traces map[] 10s 1 service.name=jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fromEnv(c.env)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got != nil {
				var attrs []string
				for _, a := range got.Resource {
					attrs = append(attrs, a.Key+"="+a.text)
				}
				text = fmt.Sprint(got.URL, " ", map[string][]string(got.Headers), " ", got.Timeout, " ", got.Ratio, " ", strings.Join(attrs, ","))
			}
			if text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
			if s := got.Sampler(); (s == nil) != (c.want == "") {
				t.Errorf("sampler %v", s)
			}
		})
	}
}

// What makes no sense is an error that names the variable, and none shows a value that may be a secret.
func TestFromEnvRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "s3cret:4317"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://s3cret"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:s3cret@:bad port/"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "s3cret"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"}, {"OTEL_EXPORTER_OTLP_TIMEOUT", "0"}, {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "Bearer s3cret"}, {"OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=s3cret%zz"}, {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=s3cret%0d%0ab: c"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(dir, "none")}, {"OTEL_EXPORTER_OTLP_CERTIFICATE", empty},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", empty}, {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", empty},
		{"OTEL_TRACES_SAMPLER", "sometimes"}, {"OTEL_TRACES_SAMPLER_ARG", "2"}, {"OTEL_TRACES_SAMPLER_ARG", "NaN"},
		{"OTEL_TRACES_SAMPLER_ARG", "half"}, {"OTEL_TRACES_EXPORTER", "jaeger"}, {"OTEL_SDK_DISABLED", "yes"},
		{"OTEL_RESOURCE_ATTRIBUTES", "a"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", c.name: c.value}
		got, err := fromEnv(env)
		e, ok := errors.AsType[*job.Error](err)
		stem := strings.TrimSuffix(strings.TrimSuffix(c.name, "KEY"), "CERTIFICATE") // of a pair, the one that is missing
		if !ok || got != nil || !strings.HasPrefix(e.Field, stem) || e.Remedy == "" {
			t.Errorf("%s=%q: %+v, %v", c.name, c.value, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows the value: %v", c.name, err)
		}
	}
}

func TestDefaultBounds(t *testing.T) {
	e := New(Config{URL: "http://localhost:1"}, nil)
	defer e.Close(true)
	if e.cfg.Queue != 8192 || e.cfg.Batch != 512 || e.cfg.Delay != time.Second || e.cfg.GiveUp != time.Minute || e.cfg.Timeout != 10*time.Second {
		t.Errorf("%+v", e.cfg)
	}
}

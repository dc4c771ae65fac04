package cmd

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// There is no container engine where the tests run, so they hold what can be held without one: that the files can be
// read, that every command in them is one that this binary takes, and that the build line builds.

// takes runs a command of an image up to the point where a node would start or be asked, and returns what it would
// start.
func takes(t *testing.T, what string, argv []string) (cfg ServerConfig) {
	t.Helper()
	if len(argv) > 0 && argv[0] == "/carillon" {
		argv = argv[1:]
	}
	if len(argv) > 0 && argv[0] == "server" {
		withNode(t, func(_ context.Context, c ServerConfig, _ func(string)) error {
			cfg = c
			return context.Canceled
		})
		if _, errOut, code := newShell(t).run("", argv...); code != 0 {
			t.Errorf("%s: %q: %s", what, argv, errOut)
		}
		return cfg
	}
	root := newApp().root()
	c, rest, err := root.Find(argv)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil || c == root {
		t.Errorf("%s: %q: %v", what, argv, err)
	}
	return cfg
}

// The units start what this binary takes, as users that their packages make, and systemd finds nothing to say of them.
// What they do is shown where the binary is run.
func TestUnits(t *testing.T) {
	settings := map[string]string{
		"server": "node-id: n1\nlisten: 10.0.0.1:7400\ncluster: [10.0.0.1:7400, 10.0.0.2:7400, 10.0.0.3:7400]\nkeys-from: /etc/carillon/keys\n",
		"worker": "join: [10.0.0.1:7400]\nexecutors: [shell]\nshell-as-node: true\ntags: {host: web1}\n",
	}
	for name, kind := range map[string]string{"carillon": "server", "carillon-worker": "worker"} {
		path := "../deploy/systemd/" + name + ".service"
		text := read(t, path)
		for _, want := range []string{"\nType=notify\n", "\nUser=" + name + "\n", "\nStateDirectory=" + name + "\n", "\nWatchdogSec=60\n",
			"\nRestart=on-failure\n", "\nKillMode=mixed\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", path, strings.TrimSpace(want))
			}
		}
		if strings.Contains(text, "\nConfigurationDirectory=") && !strings.Contains(text, "\nConfigurationDirectoryMode=0755\n") {
			t.Errorf("%s: systemd makes that directory for root, and the service could not read it", path)
		}
		if strings.Contains(text, "RestartPrevent") { // a panic, and the watchdog's abort, end with the code for wrong usage
			t.Errorf("%s does not start again what crashed", path)
		}
		_, line, _ := strings.Cut(text, "\nExecStart=/usr/bin/carillon ")
		line, _, _ = strings.Cut(line, "\n")
		file := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(file, []byte(settings[kind]), 0o600); err != nil {
			t.Fatal(err)
		}
		argv := strings.Fields(strings.Replace(line, "/etc/carillon/"+kind+".yaml", file, 1))
		s := newShell(t)
		s.env = map[string]string{}
		for l := range strings.Lines(text) {
			if v, is := strings.CutPrefix(l, "Environment="); is {
				name, value, _ := strings.Cut(strings.TrimSpace(v), "=")
				s.env[name] = value
			}
		}
		if kind == "server" {
			var cfg ServerConfig
			withNode(t, func(_ context.Context, c ServerConfig, _ func(string)) error {
				cfg = c
				return context.Canceled
			})
			if _, errOut, code := s.run("", argv...); code != 0 || cfg.DataDir != "/var/lib/carillon" || len(cfg.Cluster) != 3 {
				t.Errorf("%q: %s%+v", argv, errOut, cfg)
			}
		} else if out, errOut, code := s.run("", append([]string{"config", "show"}, argv...)...); code != 0 ||
			!regexp.MustCompile(`(?m)^state-dir +/var/lib/carillon-worker +CARILLON_STATE_DIR`).MatchString(out) {
			t.Errorf("%q: %s%s", argv, out, errOut)
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			t.Log("there is no systemd-analyze")
			continue
		}
		// The binary and its page in the manual come with the package.
		unit := filepath.Join(t.TempDir(), name+".service")
		if err := os.WriteFile(unit, []byte(strings.Replace(text, "/usr/bin/carillon", "/bin/true", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// What the processes of the file do is shown where the binary is run; here are its own rules.
func TestComposeFile(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image, Restart string
			Build          struct {
				Context string
				Args    map[string]string
			}
			Command        []string
			Ports, Volumes []string
			Healthcheck    struct{ Test []string }
			DependsOn      map[string]struct{ Condition string } `yaml:"depends_on"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	ports := map[string]bool{}
	for name, s := range file.Services {
		if s.Image == "" || s.Build.Context != ".." {
			t.Errorf("%s: %+v", name, s)
		}
		for _, v := range s.Volumes {
			if _, declared := file.Volumes[strings.SplitN(v, ":", 2)[0]]; !declared {
				t.Errorf("%s: %s is not declared", name, v)
			}
		}
		if name == "init" { // it ends, and is not started again
			takes(t, name, s.Command)
			if s.Restart != "" || len(s.Ports) != 0 || !slices.Equal(s.Volumes, []string{"keys:/keys"}) ||
				!slices.Equal(s.Command, []string{"cluster", "init", "--out", "/keys", "--once"}) {
				t.Errorf("%+v", s)
			}
			continue
		}
		cfg := takes(t, name, s.Command)
		_, port, _ := strings.Cut(cfg.Listen, ":")
		if cfg.NodeID != name || cfg.Advertise != name+":"+port || cfg.DataDir != "/data" || !cfg.Secure ||
			cfg.From != "/keys" || cfg.Bootstrap || len(cfg.Join) > 0 ||
			!slices.Equal(cfg.Cluster, []string{"n1:7400", "n2:7400", "n3:7400"}) {
			t.Errorf("%s: %+v", name, cfg)
		}
		keys := "keys:/keys:ro"
		if name == "n1" {
			keys = "keys:/keys" // a join token is put there
		}
		for _, a := range cfg.Cluster {
			if host, p, _ := strings.Cut(a, ":"); file.Services[host].Image == "" || p != port {
				t.Errorf("%s is to form a cluster with %s", name, a)
			}
		}
		if len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") || !strings.HasSuffix(s.Ports[0], ":"+port) ||
			ports[s.Ports[0]] {
			t.Errorf("%s publishes %v", name, s.Ports)
		}
		ports[s.Ports[0]] = true
		if !slices.Equal(s.Volumes, []string{name + ":/data", keys}) {
			t.Errorf("%s has the volumes %v", name, s.Volumes)
		}
		if s.Restart != "unless-stopped" || s.DependsOn["init"].Condition != "service_completed_successfully" {
			t.Errorf("%s: %+v", name, s)
		}
		if h := s.Healthcheck.Test; len(h) < 2 || h[0] != "CMD" || !slices.Contains(h, "unix:/data/admin.sock") {
			t.Errorf("%s: %v", name, h)
		} else {
			takes(t, name, h[1:])
		}
	}
	if len(file.Services) != 4 || len(file.Volumes) != 4 {
		t.Errorf("%d services, %d volumes", len(file.Services), len(file.Volumes))
	}
}

// dockerfile is the instructions of the Dockerfile, one string each.
func dockerfile(t *testing.T) (lines []string) {
	t.Helper()
	for sc := bufio.NewScanner(strings.NewReader(read(t, "../Dockerfile"))); sc.Scan(); {
		if line := strings.TrimSpace(sc.Text()); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDockerfileCommands(t *testing.T) {
	var stages []string
	found := map[string]string{}
	for _, line := range dockerfile(t) {
		word, rest, _ := strings.Cut(line, " ")
		if found[word] = rest; word == "FROM" {
			stages = append(stages, rest)
		}
		if _, argv, ok := strings.Cut(line, "CMD "); ok {
			var list []string
			if err := json.Unmarshal([]byte(argv), &list); err != nil {
				t.Errorf("%s: %v: without a shell only the JSON form works", line, err)
				continue
			}
			takes(t, line, list)
		}
	}
	if !reflect.DeepEqual(stages, []string{"golang:1.26 AS build", "scratch"}) {
		t.Errorf("stages %q", stages)
	}
	if !strings.Contains(read(t, "../go.mod"), "\ngo 1.26") {
		t.Error("the image's Go is not that of go.mod")
	}
	if found["USER"] != "65532:65532" || found["ENTRYPOINT"] != `["/carillon"]` || found["EXPOSE"] != "7400" ||
		found["VOLUME"] != "/data" {
		t.Errorf("%+v", found)
	}
	if !strings.Contains(read(t, "../Dockerfile"), "/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/") {
		t.Error("no CA certificates: https targets would all be refused")
	}
}

// The build line, as it is in the Dockerfile, makes a static binary.
func TestDockerfileBuilds(t *testing.T) {
	if os.Getenv("CARILLON_LONG") == "" {
		t.Skip("CARILLON_LONG=1 builds the binary as the image does; .ci/run does it anyway")
	}
	out := t.TempDir()
	for _, line := range dockerfile(t) {
		build, ok := strings.CutPrefix(line, "RUN ")
		if !ok || !strings.Contains(build, "go build") {
			continue
		}
		c := exec.Command("sh", "-ec", strings.ReplaceAll(build, "/out/", out+"/"))
		c.Dir, c.Env = "..", append(os.Environ(), "VERSION=v1.2.3-test", "GOFLAGS=-buildvcs=false")
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", build, err, text)
		}
		bin := filepath.Join(out, "carillon")
		text, err := exec.Command(bin, "version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(text), "carillon v1.2.3-test ") {
			t.Errorf("%s %v", text, err)
		}
		// A static binary names no interpreter that a scratch image would lack.
		data, err := os.ReadFile(bin)
		if err != nil || strings.Contains(string(data), "/lib64/ld-linux") {
			t.Errorf("not static: %v", err)
		}
		return
	}
	t.Error("no build line")
}

// The files that packages install are what a node and a worker take, as they are and with everything in them that is
// commented out.
func TestPackagedSettings(t *testing.T) {
	setting := regexp.MustCompile(`(?m)^#([a-z-]+: )`)
	for _, command := range []string{"server", "worker"} {
		text := read(t, "../deploy/packages/"+command+".yaml")
		found := setting.FindAllStringSubmatch(text, -1)
		if len(found) < 5 {
			t.Errorf("%s: %d settings are commented out", command, len(found))
		}
		path := filepath.Join(t.TempDir(), "settings.yaml")
		for _, text := range []string{text, setting.ReplaceAllString(text, "$1")} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			given := 0
			for _, s := range origins(t, newShell(t), command, "--config", path) {
				if s.From == path {
					given++
				}
			}
			if want := strings.Count("\n"+text, "\n"+found[0][1]) * len(found); given != want {
				t.Errorf("%s: %d settings, not %d:\n%s", command, given, want, text)
			}
		}
	}
}

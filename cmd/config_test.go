package cmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/settings"
)

// origins runs `carillon config show` and has its lines by their names.
func origins(t *testing.T, s *shell, args ...string) map[string]settings.Setting {
	t.Helper()
	stdout, stderr, code := s.run("", append([]string{"config", "show", args[0], "--json"}, args[1:]...)...)
	if code != 0 {
		t.Fatal(stderr)
	}
	var out struct{ Settings []settings.Setting }
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatal(err)
	}
	all := map[string]settings.Setting{}
	for _, o := range out.Settings {
		all[o.Name] = o
	}
	return all
}

// sample is a value of a flag that is not its default.
func sample(t *testing.T, f *pflag.Flag, n int) (value, shown string) {
	t.Helper()
	switch typ := f.Value.Type(); typ {
	case "bool":
		value = fmt.Sprint(f.DefValue != "true")
	case "int", "uint64":
		value = fmt.Sprint(n + 2)
	case "duration":
		value = fmt.Sprintf("%dm0s", n+2)
	case "size":
		value = fmt.Sprintf("%dMiB", n+2)
	case "string":
		value = fmt.Sprintf("text%d", n)
	case "stringSlice", "stringArray":
		value = fmt.Sprintf("name%d=x", n)
		shown = "[" + value + "]"
	default:
		t.Fatalf("--%s is a %s, of which this test has no value", f.Name, typ)
	}
	if shown == "" {
		shown = value
	}
	switch f.Name { // only names are shown
	case "broker", "notify-webhook":
		shown = fmt.Sprintf("[name%d]", n)
	case "token", "egress-proxy":
		shown = "hidden"
	}
	return value, shown
}

// Every flag of the commands that last can be set in the environment and in a file; what is typed comes before the
// environment, and that before the file.
func TestEveryFlagIsASetting(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"server", "worker", "dev"} {
		target, _, err := newApp().root().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		flags := 0
		target.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "config" || target.InheritedFlags().Lookup(f.Name) != nil {
				return
			}
			flags++
			value := make([]string, 3)
			shown := make([]string, 3)
			for n := range value {
				value[n], shown[n] = sample(t, f, n)
			}
			file := filepath.Join(dir, f.Name+".yaml")
			text := fmt.Sprintf("%s: %q\n", f.Name, value[0])
			if strings.HasPrefix(f.Value.Type(), "string") && f.Value.Type() != "string" {
				text = fmt.Sprintf("%s:\n  %s: [%q]\n", name, f.Name, value[0]) // a section, and a list
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newShell(t)
			expect := func(from string, n int, args ...string) {
				t.Helper()
				got := origins(t, s, append([]string{name}, args...)...)[f.Name]
				if got.From != from || n >= 0 && got.Value != shown[n] {
					t.Errorf("%s --%s: %+v, not %q from %s", name, f.Name, got, shown[max(n, 0)], from)
				}
			}
			variable := settings.Variable(f.Name)
			expect("default", -1)
			s.env["CARILLON_CONFIG"] = file
			expect(file, 0)
			s.env[variable] = value[1]
			expect(variable, 1)
			expect("command line", 2, "--config", file, "--"+f.Name+"="+value[2])
			if target.Flags().Lookup(f.Name+"-file") != nil {
				return // CARILLON_…_FILE is that flag's
			}
			delete(s.env, variable)
			secret := filepath.Join(dir, f.Name+".secret")
			if err := os.WriteFile(secret, []byte(value[2]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.env[variable+"_FILE"] = secret
			expect(variable+"_FILE", 2)
		})
		if flags < 8 {
			t.Errorf("%s has %d flags", name, flags)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"server", "--config", filepath.Join(dir, "none")}, "no such file"},
		{nil, []string{"server", "--config", write("a", "lisen: x\n")}, `did you mean "listen"?`},
		{nil, []string{"server", "--config", write("b", "servr: {listen: x}\n")}, `did you mean "server"?`},
		{nil, []string{"server", "--config", write("c", "worker: {node-id: x}\n")}, `there is no setting "worker.node-id"`},
		{nil, []string{"server", "--config", write("d", "- a\n")}, "is not YAML"},
		{nil, []string{"server", "--config", write("bomb", "a: &a {k: "+strings.Repeat("x", 9000)+"}\nb: ["+strings.Repeat("*a,", 200)+"]\n")},
			"bomb:2: the aliases up to here"},
		{nil, []string{"server", "--config", write("e", "slots: many\n")}, `"many" is not a valid value for --slots`},
		{nil, []string{"server", "--config", write("f", "slots: [1, 2]\n")}, "give it a single value"},
		{map[string]string{"CARILLON_SLOTS": "many"}, []string{"server"}, "CARILLON_SLOTS"},
		{map[string]string{"CARILLON_BROKER": "a=b", "CARILLON_BROKER_FILE": "x"}, []string{"server"}, "set one of them"},
		{map[string]string{"CARILLON_BROKER_FILE": "/does/not/exist"}, []string{"server"}, "CARILLON_BROKER_FILE"},
		{nil, []string{"jobs"}, "has no settings"},
	} {
		s := newShell(t)
		for k, v := range c.env {
			s.env[k] = v
		}
		for _, args := range [][]string{append([]string{"config", "show"}, c.args...), c.args} {
			if args[0] == "jobs" {
				continue
			}
			if stdout, stderr, code := s.run("", args...); code != 2 || !strings.Contains(stderr, c.want) {
				t.Errorf("%v %q: %d %s %s", c.env, args, code, stdout, stderr)
			}
		}
	}
	// One file for both: what is only the other's is not this one's.
	path := write("g", "log-level: warn\nnode-id: n1\nworker: {name: w1}\n")
	s := newShell(t)
	if w := origins(t, s, "worker", "--config", path); w["log-level"].From != path || w["name"].Value != "w1" {
		t.Errorf("%+v", w)
	}
	if w := origins(t, s, "server", "--config", path); w["node-id"].Value != "n1" {
		t.Errorf("%+v", w)
	}
	// A part of the file whose lines are all comments says nothing.
	path = write("h", "server:\n  node-id: n1\nworker:\n  #name: w1\n")
	for _, command := range []string{"server", "worker", "dev"} {
		if w := origins(t, s, command, "--config", path); w["node-id"].Value == "n1" != (command == "server") {
			t.Errorf("%s: %+v", command, w)
		}
	}
	// A flag of all commands reads its variable itself, and no file.
	s.env["CARILLON_TIMEOUT_FILE"] = filepath.Join(dir, "a")
	if w := origins(t, s, "worker"); w["timeout"].From != "default" {
		t.Errorf("%+v", w["timeout"])
	}
	s.env["CARILLON_TIMEOUT"] = "7s"
	if w := origins(t, s, "worker"); w["timeout"].From != "CARILLON_TIMEOUT" {
		t.Errorf("%+v", w["timeout"])
	}
}

// A default of zero that stands for something else is shown as that; a program gets the value and what it means.
func TestConfigShowsWhatDefaultsMean(t *testing.T) {
	all := origins(t, newShell(t), "server")
	for name, want := range map[string]string{"lease": "30s", "max-connections": "16384", "shell-memory": "no limit", "remove-dead-after": "never",
		"groups": "1", "raft-multiplier": "1", "insecure": "false"} {
		if got := all[name]; got.From != "default" || !strings.HasPrefix(cmp.Or(got.Means, got.Value), want) {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	if got := all["lease"]; got.Value != "0s" {
		t.Errorf("%+v", got)
	}
	if got := all["egress-proxy"]; got.Value != "" || got.Means != "" {
		t.Errorf("%+v", got)
	}
	out, _, _ := newShell(t).run("", "config", "show", "server")
	for _, row := range []string{`lease +30s, or .* +default`, `insecure +false +default`} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(out) {
			t.Errorf("no %q in\n%s", row, out)
		}
	}
}

package cmd

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// What no worker can carry out is refused as such, with what it can.
func TestWorkerExecutors(t *testing.T) {
	s := newShell(t)
	for _, e := range []string{"foo", "http,foo"} {
		if _, errOut, code := s.run("", "worker", "--executors", e); code != exit.Usage ||
			!strings.Contains(errOut, "--executors") || !strings.Contains(errOut, "hint: use "+strings.Join(job.Types(), ", ")+"\n") {
			t.Errorf("%s: %d %s", e, code, errOut)
		}
	}
}

// What is typed, or in the environment, counts before a file of settings, also where it says the same in another way.
func TestTokenThatCountsBeforeTheFile(t *testing.T) {
	s := newShell(t)
	text := func() string { return keys.NewToken(keys.APIToken, keys.Hash{}).Text() }
	inFile, given := text(), text()
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "worker.yaml")
	for path, content := range map[string]string{token: inFile, config: "token-file: " + token + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		env  string
		args []string
		want string
	}{{want: inFile}, {env: given, want: given}, {args: []string{"--token", given}, want: given}} {
		s.env = map[string]string{"CARILLON_TOKEN": tt.env}
		var got workerConfig
		a := s.app()
		a.work = func(_ context.Context, cfg workerConfig, _ io.Writer) error {
			got = cfg
			return nil
		}
		root := a.root()
		root.SetArgs(append([]string{"worker", "--config", config, "--join", s.addr}, tt.args...))
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err != nil || got.Token != tt.want {
			t.Errorf("%+v: %v, the token of the file: %v", tt, err, got.Token == inFile)
		}
	}
}

// A worker does what its token is for: what its flags do not say follows from that, and what they say stays.
func TestWorkerKeepsToItsToken(t *testing.T) {
	t.Parallel()
	s, admin := secureShell(t)
	s.env["CARILLON_TOKEN"] = admin
	for name, test := range map[string]struct {
		token, flags []string
		executors    string
		slots        int
	}{
		"queues":           {[]string{"--queues", "mail", "--slots", "16"}, []string{"--command", "true"}, "queue", 16},
		"less than that":   {[]string{"--queues", "mail", "--slots", "16"}, []string{"--command", "true", "--slots", "2"}, "queue", 2},
		"types":            {[]string{"--types", "http,message,queue,shell"}, nil, "http,message", 64},
		"all of them":      {[]string{"--types", "http,queue"}, []string{"--command", "true"}, "http,queue", 64},
		"nothing is bound": {nil, nil, "http", 64},
		"a command":        {nil, []string{"--command", "true"}, "queue", 64},
		"as was said":      {[]string{"--types", "http,message"}, []string{"--executors", "message"}, "message", 64},
		"all namespaces":   {[]string{"-A"}, nil, "http", 64},
	} {
		text, _ := s.want(exit.OK, "", append([]string{"token", "create", strings.ReplaceAll(name, " ", "-"), "--role", "worker"}, test.token...)...)
		var got workerConfig
		a := s.app()
		a.work = func(ctx context.Context, cfg workerConfig, _ io.Writer) error {
			err := cfg.settle(ctx, &cfg, func(error) {})
			got = cfg
			return err
		}
		root := a.root()
		root.SetArgs(append([]string{"worker", "--token", strings.TrimSpace(text), "--join", s.addr}, test.flags...))
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Join(got.Executors, ",") != test.executors || got.Slots != test.slots {
			t.Errorf("%s: %v, %d slots", name, got.Executors, got.Slots)
		}
		// A worker of one namespace shares its shell users with no other.
		if all := slices.Contains(test.token, "-A"); got.Shell.Namespace != map[bool]string{false: job.DefaultNamespace}[all] {
			t.Errorf("%s: it is kept to the namespace %q", name, got.Shell.Namespace)
		}
	}
	// There is no such token.
	other := keys.NewToken(keys.APIToken, keys.Hash{}).Text()
	if _, stderr := s.want(exit.Failure, "", "worker", "--token", other, "--join", s.addr); !strings.Contains(stderr, "does not know the token") {
		t.Error(stderr)
	}
}

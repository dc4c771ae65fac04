package cmd

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/notify"
)

// notified is a backend whose jobs have one last notification.
type notified struct {
	api.Backend
	last *job.Notification
}

func (n notified) GetJob(ctx context.Context, ref string, rd api.Read) (job.Job, error) {
	j, err := n.Backend.GetJob(ctx, ref, rd)
	j.LastNotification = n.last
	return j, err
}

func TestNotifyGolden(t *testing.T) {
	s := newShell(t)
	s.node = sync.OnceValue(func() *apitest.Node {
		return apitest.Start(t, func(c *node.Config) {
			c.Notify.Webhooks = map[string]string{"ops": "https://hooks.example.com/ops"}
			c.Notify.SMTP = notify.SMTP{Addr: "mail.example.com:25", From: "carillon@example.com"}
		})
	})
	out := s.script(
		[]string{"submit", "--name", "pay", "--schedule", "@manual", "--shell", "date", "--notify-webhook", "ops",
			"--notify-email", "a@example.com", "--notify-email", "b@example.com"},
		[]string{"jobs", "get", "pay"},
		[]string{"jobs", "get", "pay", "-o", "yaml"},
		[]string{"submit", "--name", "one", "--schedule", "@manual", "--shell", "date", "--notify-webhook",
			"https://hooks.example.com/x", "--notify-on", "failure", "--json"},
		[]string{"submit", "--schedule", "@manual", "--shell", "date", "--notify-on", "failure"},
		[]string{"submit", "--schedule", "@manual", "--shell", "date", "--notify-webhook", "ftp://x/secret"},
		[]string{"submit", "--schedule", "@manual", "--shell", "date", "--notify-email", "me"},
		[]string{"submit", "--schedule", "@manual", "--shell", "date", "--notify-email", "a@b.c", "--notify-on", "sucess"},
		[]string{"submit", "x.yaml", "--notify-email", "a@b.c"},
		[]string{"<name: file\ntype: shell\nschedule: '@manual'\npayload: {command: date}\nnotify:\n  webhook: ops\n  on: [recovery]\n"},
		[]string{"submit", "-", "--json"},
		[]string{"<name: file2\ntype: shell\nschedule: '@manual'\npayload: {command: date}\nnotify:\n  webhok: ops\n"},
		[]string{"submit", "-"},
	)
	at := func(d time.Duration) job.Instant { return job.At(noon.Add(d)) }
	for _, n := range []job.Notification{
		{Kind: "failure", At: at(-time.Minute), Status: "dead", Outcome: job.NotificationSent, Attempts: 1,
			FinishedAt: at(-time.Minute)},
		{Kind: "failure", At: at(-time.Minute), Status: "dead", Outcome: job.NotificationPending, Attempts: 3,
			Error: "webhook ops: the receiver answered 503", NextTryAt: at(time.Minute)},
		{Kind: "recovery", At: at(-time.Minute), Status: "succeeded", Outcome: job.NotificationUnknown, Attempts: 1,
			Error: "node n1 stopped leading while it was sending this", FinishedAt: at(0)},
		{Kind: "recovery", At: at(-time.Minute), Status: "succeeded", Outcome: job.NotificationFailed, Attempts: 1,
			Error: "the receiver answered 404", FinishedAt: at(0)},
	} {
		s.wrap = func(b api.Backend) api.Backend { return notified{b, &n} }
		shown, _, _ := s.run("", "jobs", "get", "pay")
		for _, l := range strings.Split(shown, "\n") {
			if strings.HasPrefix(l, "told") {
				out += l + "\n"
			}
		}
	}
	golden(t, out)
}

func TestServerNotifyFlags(t *testing.T) {
	var got ServerConfig
	withNode(t, func(_ context.Context, cfg ServerConfig, _ func(string)) error {
		got = cfg
		return context.Canceled
	})
	s := newShell(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	base := []string{"server", "--node-id", "n1", "--data-dir", "d", "--bootstrap"}
	hook, password := file("hook", "https://hooks.example.com/secret\n"), file("password", "pssst\n")
	s.env["CARILLON_SMTP_PASSWORD"] = "from the environment"
	_, errOut, code := s.run("",
		append(base, "--notify-webhook", "dev=http://127.0.0.1:9/", "--notify-webhook", "ops=@"+hook, "--smtp-addr",
			"mail.example.com:587",
			"--smtp-from", "carillon@example.com", "--smtp-user", "carillon", "--smtp-password-file", password)...)
	want := notify.Settings{Webhooks: map[string]string{"dev": "http://127.0.0.1:9/",
		"ops": "https://hooks.example.com/secret"},
		SMTP: notify.SMTP{Addr: "mail.example.com:587", From: "carillon@example.com", User: "carillon", Password: "pssst"}}
	if code != 0 || !reflect.DeepEqual(got.Notify, want) {
		t.Errorf("%+v %s", got.Notify, errOut)
	}
	if _, errOut, code := s.run("", append(base, "--notify-webhook", "team-a,default/ops=http://x/", "--notify-webhook", "*/ops=http://y/",
		"--smtp-addr", "mail:25", "--smtp-from", "c@example.com", "--smtp-namespaces", "team-a,*")...); code != 0 ||
		!reflect.DeepEqual(got.Notify.Webhooks, map[string]string{"team-a/ops": "http://x/", "ops": "http://x/", "*/ops": "http://y/"}) ||
		!slices.Equal(got.Notify.SMTP.Namespaces, []string{"team-a", "*"}) {
		t.Errorf("%+v %s", got.Notify, errOut)
	}
	s.env["CARILLON_SMTP_USER"] = "env"
	if _, errOut, code := s.run("",
		append(base, "--smtp-addr", "mail:25", "--smtp-from", "c@example.com")...); code != 0 ||
		got.Notify.SMTP.User != "env" || got.Notify.SMTP.Password != "from the environment" {
		t.Errorf("%+v %s", got.Notify, errOut)
	}
	clear(s.env)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--notify-webhook", "https://hooks.example.com/secret"}, "--notify-webhook: "},
		{[]string{"--notify-webhook", "ops=nonsense-secret"}, "--notify-webhook: the URL of ops"},
		{[]string{"--notify-webhook", "ops=@/no/such/file"}, "--notify-webhook: "},
		{[]string{"--notify-webhook", "a=http://x/", "--notify-webhook", "a=http://y/"}, "a is given twice"},
		{[]string{"--notify-webhook", "Team A/a=http://x/"}, "--notify-webhook: \"Team A\" is not a namespace"},
		{[]string{"--smtp-namespaces", "team-a"}, "--smtp-addr: there is no mail server"},
		{[]string{"--smtp-addr", "mail:25", "--smtp-from", "a@b.c", "--smtp-namespaces", "Team A"}, "--smtp-namespaces: "},
		{[]string{"--smtp-from", "a@b.c"}, "--smtp-addr: there is no mail server"},
		{[]string{"--smtp-addr", "mail.example.com", "--smtp-from", "a@b.c"}, "--smtp-addr: "},
		{[]string{"--smtp-addr", "mail.example.com:25"}, "--smtp-from: "},
		{[]string{"--smtp-addr", "mail.example.com:25", "--smtp-from", "a@b.c", "--smtp-user", "u"},
			"--smtp-password-file: there is no password for the user u"},
	} {
		_, errOut, code := s.run("", append(base, c.args...)...)
		if code != exit.Usage || !strings.Contains(errOut, c.says) || !strings.Contains(errOut, "hint: ") ||
			strings.Contains(errOut, "nonsense-secret") {
			t.Errorf("%q: %d %s", c.args, code, errOut)
		}
	}
}

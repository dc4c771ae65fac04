// Package notifyflags reads what a node is started with to send notifications.
package notifyflags

import (
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
)

// Flags are what a node needs to send notifications. Every node of a cluster gets the same: any may lead.
type Flags struct {
	webhooks     []string
	smtp         notify.SMTP
	passwordFile string
}

// Register gives a command the flags.
func (f *Flags) Register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.webhooks, "notify-webhook", nil,
		"[NAMESPACES/]NAME=URL, or NAME=@FILE: a webhook that jobs refer to by its name; repeatable")
	fl.StringSliceVar(&f.smtp.Namespaces, "smtp-namespaces", nil,
		"namespaces whose jobs may send mail, * for all (default the namespace default)")
	fl.StringVar(&f.smtp.Addr, "smtp-addr", "", "host:port of the mail server for notifications")
	fl.StringVar(&f.smtp.From, "smtp-from", "", "sender address of notifications")
	fl.StringVar(&f.smtp.User, "smtp-user", "", "user at the mail server (default $CARILLON_SMTP_USER)")
	fl.StringVar(&f.passwordFile, "smtp-password-file", "",
		"file with the password for the mail server (default $CARILLON_SMTP_PASSWORD)")
}

// secret reads a file that holds one line.
func secret(flag, path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", job.Invalid(flag, "give a file that this user can read", "%v", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// Settings are what the flags and the environment say.
func (f *Flags) Settings(env func(string) string) (notify.Settings, error) {
	s := notify.Settings{SMTP: f.smtp}
	for _, w := range f.webhooks {
		ref, to, ok := strings.Cut(w, "=")
		keys, name, err := job.GivenKeys(ref)
		if ok && err != nil {
			return s, job.Invalid("--notify-webhook", "write NAMESPACE/NAME=URL, several namespaces with commas, or "+
				"*/NAME=URL for all", "%v", err)
		}
		if !ok || !job.WebhookName(name) {
			return s, job.Invalid("--notify-webhook", "use NAME=URL or NAME=@FILE; a name is letters, digits, - _ .",
				"%q has no name", name)
		}
		if path, isFile := strings.CutPrefix(to, "@"); isFile {
			var err error
			if to, err = secret("--notify-webhook", path); err != nil {
				return s, err
			}
		}
		if u, err := url.Parse(to); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return s, job.Invalid("--notify-webhook", "use a full URL such as https://hooks.example.com/x",
				"the URL of %s is not an http or https URL", name)
		}
		for _, key := range keys {
			if _, twice := s.Webhooks[key]; twice {
				return s, job.Invalid("--notify-webhook", "give each name once", "%s is given twice", key)
			}
			if s.Webhooks == nil {
				s.Webhooks = map[string]string{}
			}
			s.Webhooks[key] = to
		}
	}
	if f.smtp.Addr == "" {
		if f.smtp.From != "" || f.smtp.User != "" || f.passwordFile != "" || len(f.smtp.Namespaces) > 0 {
			return s, job.Invalid("--smtp-addr", "give the mail server, such as mail.example.com:587",
				"there is no mail server")
		}
		return s, nil
	}
	if !values.IsAddress(f.smtp.Addr) || strings.HasPrefix(f.smtp.Addr, ":") {
		return s, job.Invalid("--smtp-addr", "use host:port, such as mail.example.com:587", "%q is not an address",
			f.smtp.Addr)
	}
	if !job.EmailAddress(f.smtp.From) {
		return s, job.Invalid("--smtp-from", "use an address such as carillon@example.com",
			"%q is not an e-mail address", f.smtp.From)
	}
	for _, space := range f.smtp.Namespaces {
		if space != job.AllNamespaces && !job.NamespaceName(space) {
			return s, job.Invalid("--smtp-namespaces", "use names of namespaces, or * for all", "%q is not a namespace",
				space)
		}
	}
	if s.SMTP.User == "" {
		s.SMTP.User = env("CARILLON_SMTP_USER")
	}
	s.SMTP.Password = env("CARILLON_SMTP_PASSWORD")
	if f.passwordFile != "" {
		var err error
		if s.SMTP.Password, err = secret("--smtp-password-file", f.passwordFile); err != nil {
			return s, err
		}
	}
	if s.SMTP.User != "" && s.SMTP.Password == "" {
		return s, job.Invalid("--smtp-password-file", "give the file, or set CARILLON_SMTP_PASSWORD",
			"there is no password for the user %s", s.SMTP.User)
	}
	return s, nil
}

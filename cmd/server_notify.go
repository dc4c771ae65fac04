package cmd

import (
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
)

// notifyFlags are what a node needs to send notifications. Every node of a cluster gets the same: any may lead.
type notifyFlags struct {
	webhooks     []string
	smtp         notify.SMTP
	passwordFile string
}

func (f *notifyFlags) register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.webhooks, "notify-webhook", nil,
		"NAME=URL, or NAME=@FILE: a webhook that jobs notify by its name; repeatable")
	fl.StringVar(&f.smtp.Addr, "smtp-addr", "", "host:port of the mail server for notifications")
	fl.StringVar(&f.smtp.From, "smtp-from", "", "address that notifications come from")
	fl.StringVar(&f.smtp.User, "smtp-user", "", "user at the mail server (default $CARILLON_SMTP_USER)")
	fl.StringVar(&f.passwordFile, "smtp-password-file", "",
		"file with the password at the mail server (default $CARILLON_SMTP_PASSWORD)")
}

// secret reads a file that holds one line.
func secret(flag, path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", job.Invalid(flag, "give a file that this user can read", "%v", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func (f *notifyFlags) settings(env func(string) string) (notify.Settings, error) {
	s := notify.Settings{SMTP: f.smtp}
	for _, w := range f.webhooks {
		name, to, ok := strings.Cut(w, "=")
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
				"what %s stands for is not an http or https URL", name)
		}
		if _, twice := s.Webhooks[name]; twice {
			return s, job.Invalid("--notify-webhook", "give each name once", "%s is given twice", name)
		}
		if s.Webhooks == nil {
			s.Webhooks = map[string]string{}
		}
		s.Webhooks[name] = to
	}
	if f.smtp.Addr == "" {
		if f.smtp.From != "" || f.smtp.User != "" || f.passwordFile != "" {
			return s, job.Invalid("--smtp-addr", "give the mail server, such as mail.example.com:587", "there is no mail server")
		}
		return s, nil
	}
	if !isAddress(f.smtp.Addr) || strings.HasPrefix(f.smtp.Addr, ":") {
		return s, job.Invalid("--smtp-addr", "use host:port, such as mail.example.com:587", "%q is not an address",
			f.smtp.Addr)
	}
	if !job.EmailAddress(f.smtp.From) {
		return s, job.Invalid("--smtp-from", "use an address such as carillon@example.com", "%q is not an e-mail address",
			f.smtp.From)
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
			"the user %s has no password", s.SMTP.User)
	}
	return s, nil
}

// Package habits answers command lines that were typed out of habit: those of other schedulers, with typing errors, or
// without the argument that says what is meant.
package habits

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
)

// habit is what people type elsewhere and what it is here. What follows the words is kept; if nothing does, the
// placeholder stands for it. Without a placeholder nothing is kept.
type habit struct{ typed, means, placeholder string }

// table has the longer of two that begin alike first.
var table = []habit{
	// kubectl
	{"get jobs", "jobs", ""}, {"get job", "jobs get", "JOB"}, {"get cronjobs", "jobs", ""},
	{"get cronjob", "jobs get", "JOB"}, {"get pods", "runs", ""}, {"get runs", "runs", ""},
	{"get run", "runs get", "RUN"}, {"get nodes", "cluster members", ""}, {"get queues", "queues", ""},
	{"get secrets", "secret list", ""}, {"get events", "audit", ""}, {"get", "jobs get", "JOB"},
	{"describe job", "jobs get", "JOB"}, {"describe run", "runs get", "RUN"}, {"describe", "jobs get", "JOB"},
	{"delete job", "jobs delete", "JOB"}, {"delete", "jobs delete", "JOB"}, {"create job", "submit", "FILE"},
	{"create cronjob", "submit", "FILE"}, {"create", "submit", "FILE"}, {"edit job", "jobs edit", "JOB"},
	{"edit", "jobs edit", "JOB"}, {"exec", "jobs run", "JOB"}, {"top", "status --watch", ""},
	{"config use-context", "context use", "NAME"}, {"config current-context", "context show", ""},
	{"config get-contexts", "context", ""}, {"cluster-info", "status", ""}, {"use-context", "context use", "NAME"},
	{"context current", "context show", ""}, {"use", "context use", "NAME"},
	// nomad, consul, vault
	{"job status", "jobs get", "JOB"}, {"job start", "jobs resume", "JOB"}, {"job stop", "jobs pause", "JOB"},
	{"job plan", "diff -f", "FILE"}, {"job history", "runs", "JOB"}, {"plan", "diff -f", "FILE"},
	{"node status", "cluster members", ""}, {"node drain", "cluster leave", ""},
	{"server members", "cluster members", ""}, {"operator raft list-peers", "cluster members", ""},
	{"operator raft remove-peer", "cluster remove", "NODE"},
	{"operator raft transfer-leadership", "cluster transfer", ""}, {"operator snapshot save", "backup", "FILE"},
	{"operator snapshot restore", "restore", "FILE"}, {"alloc logs", "logs", "JOB"}, {"alloc", "runs", ""},
	{"agent", "server", ""}, {"members", "cluster members", ""}, {"join", "server --join", "ADDR"},
	// etcdctl
	{"member list", "cluster members", ""}, {"member remove", "cluster remove", "NODE"},
	{"member promote", "cluster promote", "NODE"}, {"endpoint health", "status", ""},
	{"endpoint status", "status", ""}, {"snapshot save", "backup", "FILE"}, {"snapshot restore", "restore", "FILE"},
	{"move-leader", "cluster transfer", ""}, {"alarm list", "status", ""},
	// temporal
	{"workflow list", "jobs", ""}, {"workflow start", "jobs run", "JOB"}, {"workflow describe", "jobs get", "JOB"},
	{"workflow cancel", "jobs cancel", "JOB"}, {"schedule create", "submit", "FILE"}, {"schedule list", "jobs", ""},
	{"schedule delete", "jobs delete", "JOB"}, {"schedule trigger", "jobs run", "JOB"},
	{"schedule backfill", "jobs backfill", "JOB"}, {"task-queue list", "queues", ""},
	{"operator cluster health", "status", ""},
	// crontab, at, systemctl
	{"crontab -l", "jobs", ""}, {"crontab -e", "jobs edit", "JOB"}, {"crontab -r", "jobs delete", "JOB"},
	{"crontab", "import crontab", "FILE"}, {"atq", "upcoming", ""}, {"atrm", "jobs delete", "JOB"},
	{"at", "submit --at", "TIME"}, {"enable", "jobs resume", "JOB"}, {"disable", "jobs pause", "JOB"},
	{"start", "dev", ""}, {"stop", "jobs pause", "JOB"}, {"list-timers", "upcoming", ""},
	{"journal", "logs", "JOB"},
	// anywhere
	{"ls", "jobs", ""}, {"list", "jobs", ""}, {"ps", "runs", ""}, {"add", "submit", "FILE"},
	{"new", "submit", "FILE"}, {"rm", "jobs delete", "JOB"}, {"remove", "jobs delete", "JOB"},
	{"run", "jobs run", "JOB"}, {"trigger", "jobs run", "JOB"}, {"pause", "jobs pause", "JOB"},
	{"suspend", "jobs pause", "JOB"}, {"resume", "jobs resume", "JOB"}, {"unpause", "jobs resume", "JOB"},
	{"cancel", "jobs cancel", "JOB"}, {"kill", "jobs cancel", "JOB"}, {"show", "jobs get", "JOB"},
	{"history", "runs", "JOB"}, {"log", "logs", "JOB"}, {"tail", "logs -f", "JOB"}, {"next", "upcoming", ""},
	{"nodes", "cluster members", ""}, {"workers", "status", ""},
	{"health", "status", ""}, {"ping", "status", ""}, {"info", "status", ""}, {"init", "cluster init --out", "DIR"},
	{"import-crontab", "import crontab", "FILE"}, {"dlq", "dead", ""}, {"retry", "dead redrive --job", "JOB"},
	{"events", "audit", ""}, {"tokens", "token list", ""}, {"secrets", "secret list", ""},
	{"export", "runs export", ""},
}

// Typed are the command lines that are known to be typed out of habit.
func Typed() (all []string) {
	for _, h := range table {
		all = append(all, h.typed)
	}
	return all
}

// Explain is a better answer to a command line that cobra refused with err at a command; nil if there is none.
func Explain(err error, cmd *cobra.Command, args []string) error {
	said := err.Error()
	switch {
	case strings.HasPrefix(said, "unknown command "):
		return unknown(cmd, words(cmd.Root(), args))
	case needs.MatchString(said):
		m := needs.FindStringSubmatch(said)
		return count(cmd, m[len(m)-1])
	}
	return nil
}

// unknown answers a command that is not there.
func unknown(cmd *cobra.Command, typed []string) error {
	for _, h := range table {
		parts := strings.Fields(h.typed)
		if len(typed) < len(parts) || !slices.Equal(typed[:len(parts)], parts) {
			continue
		}
		means, rest := "carillon "+h.means, ""
		if h.placeholder != "" {
			if rest = strings.Join(quoted(typed[len(parts):]), " "); rest == "" {
				rest = h.placeholder
			}
			means += " " + rest
		}
		return job.Errorf(job.CodeInvalid, "did you mean `"+means+"`?", "there is no command `carillon %s`", h.typed)
	}
	own := strings.Fields(cmd.CommandPath())[1:]
	if len(typed) <= len(own) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(typed[len(own):]), func(s string) bool { return strings.HasPrefix(s, "-") })
	if len(rest) == 0 {
		return nil
	}
	word := rest[0]
	if watch := cmd.Flags().Lookup("watch"); watch != nil && watch.Changed && interval.MatchString(word) {
		every := word
		if !strings.HasSuffix(word, "s") {
			every += "s"
		}
		return job.Errorf(job.CodeInvalid, "did you mean `"+cmd.CommandPath()+" --watch="+every+"`?",
			"the interval of --watch needs an = before it")
	}
	if !cmd.HasSubCommands() {
		remedy := "`" + cmd.CommandPath() + " --help` says more"
		if f := cmd.Flags().ShorthandLookup("f"); f != nil && f.Value.Type() != "bool" && !f.Changed {
			remedy = "did you mean `" + cmd.CommandPath() + " -f " + strings.Join(quoted(rest), " -f ") + "`?"
		}
		return job.Errorf(job.CodeInvalid, remedy, "`%s` takes no argument, but got %q", cmd.CommandPath(), word)
	}
	remedy := "`" + cmd.CommandPath() + " --help` lists the commands"
	cmd.SuggestionsMinimumDistance = 2
	if len(word) < 5 { // of a short word two letters are most of it
		cmd.SuggestionsMinimumDistance = 1
	}
	var names []string
	for _, s := range append(swapped(cmd, word), cmd.SuggestionsFor(word)...) {
		if name := "`" + cmd.CommandPath() + " " + s + "`"; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		remedy = "did you mean " + strings.Join(names, " or ") + "?"
	}
	return job.Errorf(job.CodeInvalid, remedy, "there is no command `%s %s`", cmd.CommandPath(), word)
}

// interval is what follows --watch where a = was forgotten.
var interval = regexp.MustCompile(`^\d+(\.\d+)?(s|ms|m)?$`)

// swapped are the commands of which a word has the letters in another order, as jbos.
func swapped(cmd *cobra.Command, word string) (names []string) {
	letters := func(s string) string {
		r := []rune(s)
		slices.Sort(r)
		return string(r)
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && letters(sub.Name()) == letters(word) {
			names = append(names, sub.Name())
		}
	}
	return names
}

// words is a command line without the flags before the first word that is none, and their values.
func words(root *cobra.Command, args []string) []string {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, _, whole := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		f := root.PersistentFlags().Lookup(name)
		args = args[1:]
		if f != nil && !whole && takesValue(f) && len(args) > 0 {
			args = args[1:]
		}
	}
	return args
}

func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }

// quoted are arguments as they are typed in a shell.
func quoted(args []string) []string {
	out := slices.Clone(args)
	for i, s := range out {
		if s == "" || strings.ContainsAny(s, " \t\n\"'$`\\*?[]{}()<>|&;#!~") {
			out[i] = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return out
}

// needs is how cobra refuses a number of arguments.
var needs = regexp.MustCompile(`^(?:accepts|requires) .*arg\(s\), (?:only )?received (\d+)$`)

// things are what arguments name, and how they are listed; %s is the command above.
var things = map[string][2]string{
	"JOB": {"job", "`carillon jobs` lists them"}, "RUN": {"run", "`carillon runs JOB` lists them"},
	"JOB|RUN": {"job or run", "`carillon jobs` lists the jobs"}, "ID": {"one", "`%s list` lists them"},
	"NAME": {"one", "`%s list` lists them"}, "TOKEN": {"token", "`%s list` lists them"},
	"NODE": {"node", "`carillon cluster members` lists them"}, "FILE": {"file", ""},
	"FILE|-": {"file", "- is standard input"},
	"ADDR":   {"address", "for example 10.0.0.1:7400, or several with commas"},
}

// count answers a wrong number of arguments.
func count(cmd *cobra.Command, received string) error {
	use := strings.TrimSpace(cmd.Parent().CommandPath() + " " + cmd.Use)
	help := "`" + cmd.CommandPath() + " --help` says more"
	_, wants, _ := strings.Cut(cmd.Use, " ")
	first, _, _ := strings.Cut(wants, " ")
	thing, ok := things[strings.TrimSuffix(first, "...")]
	if received != "0" || wants == "" {
		return job.Errorf(job.CodeInvalid, help, "%s arguments are not what `%s` takes", received, use)
	}
	if !ok {
		return job.Errorf(job.CodeInvalid, help, "say which %s: %s", first, use)
	}
	remedy := thing[1]
	if strings.Contains(remedy, "%s") {
		if list, _, err := cmd.Parent().Find([]string{"list"}); err != nil || list == cmd.Parent() {
			remedy = help // nothing lists them
		} else {
			remedy = fmt.Sprintf(remedy, cmd.Parent().CommandPath())
		}
	}
	if remedy == "" {
		remedy = help
	}
	return job.Errorf(job.CodeInvalid, remedy, "say which %s: %s", thing[0], use)
}

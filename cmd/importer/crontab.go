package importer

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/internal/crontab"
	"github.com/carillon-scheduler/carillon/job"
)

// crontabFlags are what a crontab does not say itself.
type crontabFlags struct {
	zone, host, user, prefix string
	anyHost, asWorker, mail  bool
	column, noColumn         bool
	timeout                  time.Duration
}

// Crontab makes the command for the tables of cron.
func Crontab(a App) *cobra.Command {
	var f crontabFlags
	c := &cobra.Command{
		Use:   "crontab FILE|DIR|- ...",
		Short: "Print the jobs of crontabs as job files",
		Long: `Print a job file for every line of the crontabs, for you to read, correct and submit. Nothing is submitted.

The jobs behave as under cron: the same times, environment and user, on the same host; runs may overlap, and nothing is
retried or caught up. Notes on standard error say what differs, line by line. Lines that cannot become a job are left
out and reported, and the exit code is then 1.`,
		Example: `  crontab -l | carillon import crontab - > jobs.yaml
  carillon import crontab /etc/crontab /etc/cron.d > jobs.yaml
  carillon import crontab - --host web1 --tz Europe/Berlin < web1.crontab | carillon submit -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(a, cmd, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.zone, "tz", "",
		"IANA time zone that cron ran in (default this machine's); CRON_TZ in a file takes precedence")
	fl.StringVar(&f.host, "host", "", "machine that the jobs run on: their workers need the tag host with this "+
		"value (default this machine)")
	fl.BoolVar(&f.anyHost, "any-host", false, "let the jobs run on any worker")
	fl.StringVar(&f.user, "user", "", "user to run jobs as, for a file without a user column (default the worker's)")
	fl.BoolVar(&f.asWorker, "as-worker", false, "ignore users: all jobs run as the worker's user")
	fl.BoolVar(&f.column, "user-column", false,
		"the sixth field is a user (default for /etc/crontab and files in a directory cron.d)")
	fl.BoolVar(&f.noColumn, "no-user-column", false, "the sixth field begins the command")
	fl.BoolVar(&f.mail, "mail", false,
		"mail the addresses of MAILTO when a job begins to fail and when it works again; "+
			"the nodes need --smtp-addr")
	fl.StringVar(&f.prefix, "prefix", "", "prefix for the names of the jobs")
	fl.DurationVar(&f.timeout, "timeout", 24*time.Hour, "how long a run may take; cron has no limit")
	c.MarkFlagsMutuallyExclusive("host", "any-host")
	c.MarkFlagsMutuallyExclusive("user", "as-worker")
	c.MarkFlagsMutuallyExclusive("user-column", "no-user-column")
	return c
}

// crontabFile is a file with what its place says of it.
type crontabFile struct {
	name   string
	data   []byte
	column bool   // it has users
	user   string // whose it is
}

func (f *crontabFlags) run(a App, cmd *cobra.Command, args []string) error {
	if f.timeout <= 0 {
		return job.Invalid("--timeout", "use a duration such as 24h", "%s is not a valid timeout", f.timeout)
	}
	zone, err := a.zone(f.zone)
	if err != nil {
		return err
	}
	host := f.host
	if host == "" && !f.anyHost {
		name, err := os.Hostname()
		if err != nil {
			return job.Invalid("--host", "give --host NAME or --any-host", "this machine has no name: %v", err)
		}
		host = name
	}
	var files []crontabFile
	for _, arg := range args {
		some, err := f.open(cmd.InOrStdin(), arg)
		if err != nil {
			return err
		}
		files = append(files, some...)
	}
	r := crontab.NewReader(crontab.Options{Zone: zone, Host: host, AsWorker: f.asWorker, Mail: f.mail,
		Prefix: f.prefix, Timeout: f.timeout, Now: a.Now()})
	out := printer{app: a, cmd: cmd}
	for _, file := range files {
		if !f.noColumn && !file.column && crontab.HasUsers(file.data) {
			out.note("%s: the sixth field of every line looks like a user, as in /etc/crontab, but is read as the "+
				"beginning of the command. Give --user-column if it is a "+
				"user, --no-user-column if it is not", file.name)
		}
		for _, l := range r.Read(file.data, file.column, file.user) {
			err := out.print(found{place: fmt.Sprintf("%s:%d", file.name, l.Number), text: l.Text, spec: l.Job,
				notes: l.Notes, err: l.Err})
			if err != nil {
				return err
			}
		}
	}
	err = out.end("line")
	if out.jobs > 0 && host != "" {
		out.note("the jobs wait for a worker with the tag host=%s: start the node or worker of that machine with "+
			"--tags host=%[1]s, or import with --any-host", host)
	}
	return err
}

// open reads a file, all files of a directory, or the standard input.
func (f *crontabFlags) open(stdin io.Reader, arg string) ([]crontabFile, error) {
	if arg == "-" {
		data, err := readAll(stdin, "standard input")
		return []crontabFile{f.placed("crontab", data)}, err
	}
	info, err := os.Stat(arg)
	if err != nil {
		return nil, job.Errorf(job.CodeNotFound, "name a file, a directory, or - for standard input", "%v", err)
	}
	names := []string{arg}
	if info.IsDir() {
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			// As cron does: no hidden files, no copies of editors and package managers.
			if e.Type().IsRegular() && !strings.ContainsAny(e.Name(), ".~#") {
				names = append(names, filepath.Join(arg, e.Name()))
			}
		}
		slices.Sort(names)
	}
	files := make([]crontabFile, 0, len(names))
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		data, err := readAll(file, name)
		file.Close()
		if err != nil {
			return nil, err
		}
		files = append(files, f.placed(name, data))
	}
	return files, nil
}

// placed says whether a file has a column for the user, and whose it is otherwise, by where it lies: crontabs of users
// have their names.
func (f *crontabFlags) placed(name string, data []byte) crontabFile {
	full, err := filepath.Abs(name)
	if err != nil {
		full = name
	}
	dir := filepath.Base(filepath.Dir(full))
	file := crontabFile{name: name, data: data, user: f.user}
	file.column = f.column || !f.noColumn && (full == "/etc/crontab" || dir == "cron.d")
	spools := []string{"/var/spool/cron/crontabs", "/var/spool/cron", "/var/cron/tabs"}
	if !file.column && slices.Contains(spools, filepath.Dir(full)) {
		file.user = cmp.Or(f.user, filepath.Base(full))
	}
	return file
}

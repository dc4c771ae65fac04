package cmd

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
)

// requestLimit is --timeout: how long a command may wait for answers. It is the client's own limits unless it is given.
type requestLimit struct {
	d    time.Duration
	flag *pflag.Flag
	env  string // CARILLON_TIMEOUT, if that is set
	bad  error
}

func (l *requestLimit) register(fl *pflag.FlagSet, name string, env func(string) string) {
	l.d = 10 * time.Second
	if l.env = env("CARILLON_TIMEOUT"); l.env != "" {
		if l.d, l.bad = time.ParseDuration(l.env); l.bad != nil {
			l.bad = job.Invalid("CARILLON_TIMEOUT", "use a duration such as 30s", "%q is not a duration", l.env)
		}
	}
	fl.DurationVar(&l.d, name, l.d,
		"how long a request may take in all; of a stream, how long it may be silent (30s); 0 for no limit (or CARILLON_TIMEOUT)")
	l.flag = fl.Lookup(name)
}

// given says that the user set a limit.
func (l *requestLimit) given() bool { return l.env != "" || l.flag != nil && l.flag.Changed }

func (l *requestLimit) check() error {
	if l.bad == nil && l.d < 0 {
		return job.Invalid("--"+l.flag.Name, "use a duration such as 30s, or 0 for no limit", "%s is less than nothing", l.d)
	}
	return l.bad
}

// namingFlags are the flags that name one thing. Given and empty they are a variable that is not set, and without this
// the command would be about everything, or about something without a name.
var namingFlags = []string{"name", "job", "queue"}

// emptyNames refuses arguments and names that are empty.
func emptyNames(cmd *cobra.Command, args []string) error {
	for i, arg := range args {
		if strings.TrimSpace(arg) == "" {
			return usage("is a variable not set?", "argument %d is empty", i+1)
		}
	}
	for _, name := range namingFlags {
		f := cmd.Flags().Lookup(name)
		if f != nil && f.Changed && f.Value.Type() == "string" && strings.TrimSpace(f.Value.String()) == "" {
			return job.Invalid("--"+name, "leave it out, or give it a value: is a variable not set?", "it is empty")
		}
	}
	return nil
}

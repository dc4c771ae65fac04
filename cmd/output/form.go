package output

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// Form is the value of -o: how a command prints what it found.
type Form string

// The forms.
const (
	FormTable Form = "table"
	FormWide  Form = "wide" // a table with every column, and nothing shortened
	FormJSON  Form = "json"
	FormYAML  Form = "yaml"
	FormName  Form = "name" // one name a line
)

var forms = []Form{FormTable, FormWide, FormJSON, FormYAML, FormName}

// EnvForm is the variable that says the form once for all commands.
const EnvForm = "CARILLON_OUTPUT"

// Choice is the form that a command line asks for, by -o, --json and --quiet.
type Choice struct {
	Form  Form
	Quiet bool // print names where there are some, and nothing else

	typed, env Form
	asksJSON   bool
	isJSON     *bool
	seen       uint64 // a hash of the answers so far
}

// Saw notes an answer, so that a watch knows whether there is another one.
func (c *Choice) Saw(raw []byte) {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, c.seen)
	_, _ = h.Write(raw)
	c.seen = h.Sum64()
}

// Register gives all commands the flags. isJSON is kept as the flags are read: an error in a later one is JSON too.
func (c *Choice) Register(root *cobra.Command, isJSON *bool, env func(string) string) {
	c.Form, c.isJSON, c.env = FormTable, isJSON, Form(env(EnvForm))
	*isJSON = c.env == FormJSON
	fl := root.PersistentFlags()
	fl.VarP(c, "output", "o", "how to print: "+oneOf(forms)+" (or "+EnvForm+")")
	fl.BoolFunc("json", "the same as -o json: the API's JSON, and errors as JSON on standard error",
		func(s string) (err error) {
			c.asksJSON, err = strconv.ParseBool(s)
			*isJSON = *isJSON || c.asksJSON
			return err
		})
	fl.BoolVarP(&c.Quiet, "quiet", "q", false, "print only names, or ids where there is no name")
	var names []string
	for _, f := range forms {
		names = append(names, string(f))
	}
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

var _ pflag.Value = (*Choice)(nil)

func (c *Choice) String() string { return string(c.typed) }

// Type is what the help calls the value.
func (c *Choice) Type() string { return "form" }

// Set takes what was typed.
func (c *Choice) Set(s string) error {
	if !slices.Contains(forms, Form(s)) {
		return job.Errorf(job.CodeInvalid, "", "use %s", oneOf(forms))
	}
	c.typed = Form(s)
	*c.isJSON = c.typed == FormJSON
	return nil
}

// WantsJSON says of a command line that could not be read whether it asks for JSON.
func WantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--json", "--json=true", "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == string(FormJSON) {
				return true
			}
		case "--":
			return false
		}
	}
	return false
}

// without are the commands that have not every form, by their paths. Those that are not here print the answer of a
// node, or a value, and have all; whether that has names is known by its type.
var without = map[string][]Form{
	"apply": {FormYAML}, "diff": {FormYAML, FormName},
	"runs tail": {FormYAML, FormName}, "logs": {FormYAML, FormName},
	"runs export": {FormYAML, FormName}, "audit export": {FormYAML, FormName},
	"import crontab": {FormYAML, FormName}, "import dkron": {FormYAML, FormName},
	"server": {FormYAML, FormName}, "dev": {FormYAML, FormName}, "worker": {FormYAML, FormName},
	"backup": {FormYAML, FormName}, "token create": {FormYAML, FormName},
	"restore": {FormName}, "compact": {FormName}, "login": {FormName}, "cluster recover": {FormName},
	"cluster grow-groups": {FormName}, "cluster init": {FormName}, "cluster token create": {FormName},
}

// Settle decides on the form before a command does anything. The variable is a preference: a command that has not that
// form prints a table.
func (c *Choice) Settle(cmd *cobra.Command) error {
	if c.env != "" && !slices.Contains(forms, c.env) {
		return job.Invalid(EnvForm, "use "+oneOf(forms), "%q is none", string(c.env))
	}
	typed := c.typed
	if c.asksJSON {
		if typed != "" && typed != FormJSON {
			return job.Invalid("--json", "give one of them", "--json and -o %s are both given", string(typed))
		}
		typed = FormJSON
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	lacks := without[path]
	if strings.HasPrefix(path, "bench") || strings.HasPrefix(path, "completion") {
		lacks = []Form{FormYAML, FormName}
	}
	switch {
	case c.Quiet && typed != "" && typed != FormName:
		return job.Invalid("--quiet", "give one of them", "--quiet and -o %s are both given", string(typed))
	case c.Quiet:
		c.Form = FormName
	case typed != "":
		if c.Form = typed; slices.Contains(lacks, typed) {
			return refuse(cmd, typed, lacks)
		}
	case c.env != "" && !slices.Contains(lacks, c.env):
		c.Form = c.env
	}
	*c.isJSON = c.Form == FormJSON
	return nil
}

func refuse(cmd *cobra.Command, f Form, lacks []Form) error {
	var has []Form
	for _, one := range forms {
		if !slices.Contains(lacks, one) {
			has = append(has, one)
		}
	}
	why := "has no names to print"
	if f != FormName {
		why = "does not print " + strings.ToUpper(string(f))
	}
	return job.Invalid("--output", "use "+oneOf(has), "`%s` %s", cmd.CommandPath(), why)
}

func oneOf(list []Form) string {
	var b strings.Builder
	for i, f := range list {
		switch {
		case i > 0 && i == len(list)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(f))
	}
	return b.String()
}

// Check refuses, before a request is made, to print the names of what has none. v is a value of the type that the
// answer will have; all says that it is over all namespaces.
func (c *Choice) Check(cmd *cobra.Command, v any, all bool) error {
	if c.Form != FormName || c.Quiet {
		return nil
	}
	_, scope := names(v)
	switch {
	case scope == unnamed && c.typed == "": // it is only a preference
		c.Form = FormTable
	case scope == unnamed:
		return refuse(cmd, FormName, []Form{FormName})
	case scope == namedInNamespace && all:
		return job.Invalid("--output", "give one namespace, with -n",
			"names from several namespaces could not be told apart")
	}
	return nil
}

// Print prints an answer for a program: v, which came as raw. Whether it did is the first result; people are for the
// caller.
func (c *Choice) Print(w io.Writer, raw []byte, v any, all bool) (bool, error) {
	switch c.Form {
	case FormJSON:
		return true, Raw(w, raw)
	case FormYAML:
		text, err := asYAML(raw, v)
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	case FormName:
		return true, printNames(w, v, all)
	}
	return false, nil
}

// Printer is a printer for people as the form wants it. With --quiet there is nothing for people.
func (c *Choice) Printer(p Printer) Printer {
	if p.Wide = c.Form == FormWide; p.Wide {
		p.Width = 0
	}
	if c.Form == FormName {
		p.W = io.Discard
	}
	return p
}

// Lines refuses a form in which a command has no line for each of the things that it does.
func (c *Choice) Lines(cmd *cobra.Command) error {
	switch {
	case c.Form == FormYAML && c.typed != "":
		return refuse(cmd, FormYAML, []Form{FormYAML})
	case c.Form == FormYAML:
		c.Form = FormTable
	}
	return nil
}

// Made prints the name of a job that was made, if only names are printed.
func (c *Choice) Made(w io.Writer, name string, id job.ID) error {
	if c.Form != FormName {
		return nil
	}
	_, err := io.WriteString(w, cmp.Or(name, id.String())+"\n")
	return err
}

// Value is Print for what was found out without a node.
func (c *Choice) Value(cmd *cobra.Command, v any) (bool, error) {
	if err := c.Check(cmd, v, false); err != nil {
		return true, err
	}
	var raw []byte
	if c.Form == FormJSON || c.Form == FormYAML {
		var err error
		if raw, err = jsontext.Marshal(v); err != nil {
			return true, err
		}
	}
	return c.Print(cmd.OutOrStdout(), raw, v, false)
}

func asYAML(raw []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case JobFile:
		return SpecYAML(v.Spec)
	case jobPage:
		return jobFiles(v)
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	return jobfile.ToYAML(raw)
}

// Exceptions are the commands that have not every form, by their paths.
func Exceptions() []string { return slices.Sorted(maps.Keys(without)) }

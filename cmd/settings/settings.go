// Package settings gives the flags of a process that lasts the values that were not typed: from the environment, or
// from a file. Commands that make one request are typed: a variable that was set for something else must not widen what
// they do.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	prefix   = "CARILLON_"
	fileFlag = "config"
)

// Setting is the value of a flag and where it comes from.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Means string `json:"means,omitempty"` // what a default stands for that is found out later, as the help says it
	From  string `json:"from"`            // default, command line, the variable, or the file
}

// secrets are shown without their values: only the names before the first "=" are.
var secrets = []string{"broker", "egress-proxy", "notify-webhook", "token"}

// Add gives a command --config, and its flags their values before it runs.
func Add(c *cobra.Command, env func(string) string) {
	c.Flags().String(fileFlag, "",
		"YAML file with flags by their names; the command line and the environment take precedence (or "+
			"CARILLON_CONFIG)")
	run := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		if _, err := Fill(cmd, env); err != nil {
			return err
		}
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}

// Variable is the name of a flag in the environment.
func Variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// elsewhere are flags of all commands that are no settings of a process: the environment gives an Idempotency-Key to
// the commands of a shell job, --addr, --context and how to print are for single requests.
var elsewhere = []string{"help", fileFlag, "json", "idempotency-key", "addr", "context", "output", "quiet"}

// Fill sets the flags that were not typed, and says of each where its value comes from.
func Fill(cmd *cobra.Command, env func(string) string) ([]Setting, error) {
	from := map[string]string{}
	file, err := open(cmd, env)
	if err != nil {
		return nil, err
	}
	err = each(cmd, func(f *pflag.Flag) error {
		from[f.Name] = "default"
		if f.Changed {
			from[f.Name] = "command line"
			return nil
		}
		where, err := fromEnvironment(cmd, f, env)
		if other := twin(cmd, f); err == nil && where == "" && (other == nil || env(Variable(other.Name)) == "" &&
			(!other.Changed || from[other.Name] == file.path)) {
			where, err = file.set(f)
		}
		if where != "" {
			from[f.Name] = where
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []Setting
	err = each(cmd, func(f *pflag.Flag) error {
		s := Setting{Name: f.Name, Value: Shown(f), From: from[f.Name]}
		if s.From == "default" {
			s.Means = means(f, s.Value)
		}
		all = append(all, s)
		return nil
	})
	return all, err
}

// twin is the flag that says the same in another way, as --token-file does for --token. What is typed for it, or in the
// environment, counts before the file.
func twin(cmd *cobra.Command, f *pflag.Flag) *pflag.Flag {
	name, of := strings.CutSuffix(f.Name, "-file")
	if !of {
		name += "-file"
	}
	return cmd.Flags().Lookup(name)
}

// said is what the help says that a default is; not which variable it is in.
var said = regexp.MustCompile(`\(default ([^$()][^()]*)\)`)

// means is what a default of zero stands for, if the help says it.
func means(f *pflag.Flag, value string) string {
	if m := said.FindStringSubmatch(f.Usage); m != nil && slices.Contains([]string{"", "0", "0s", "0B", "[]"}, value) {
		return m[1]
	}
	return ""
}

// each calls for every setting, in the order of the names, until one fails.
func each(cmd *cobra.Command, do func(*pflag.Flag) error) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(elsewhere, f.Name) && !f.Hidden {
			err = do(f)
		}
	})
	return err
}

// fromEnvironment sets a flag by its variable, or by the file that CARILLON_…_FILE names. Both is a mistake.
func fromEnvironment(cmd *cobra.Command, f *pflag.Flag, env func(string) string) (where string, err error) {
	name := Variable(f.Name)
	value := env(name)
	if cmd.InheritedFlags().Lookup(f.Name) != nil { // those of all commands read it themselves
		if value == "" {
			name = ""
		}
		return name, nil
	}
	if path := env(name + "_FILE"); path != "" && cmd.Flags().Lookup(f.Name+"-file") == nil {
		if value != "" {
			return "", job.Invalid(name+"_FILE", "set one of them", "%s is set too", name)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return "", job.Invalid(name+"_FILE", "name a file that can be read", "%v", err)
		}
		name, value = name+"_FILE", strings.TrimRight(string(data), "\r\n")
	}
	if value == "" {
		return "", nil
	}
	list := []string{value}
	if f.Value.Type() == "stringArray" { // their values may have commas
		list = strings.Fields(value)
	}
	return name, set(f, name, list)
}

// set gives a flag a value that was not typed. From then on it counts as given.
func set(f *pflag.Flag, where string, values []string) (err error) {
	if s, ok := f.Value.(pflag.SliceValue); ok && (len(values) != 1 || f.Value.Type() == "stringArray") {
		err = s.Replace(values)
	} else if len(values) == 1 {
		err = f.Value.Set(values[0])
	} else {
		err = errors.New("give it a single value")
	}
	if err != nil {
		return job.Invalid(where, fmt.Sprintf("--%s: %s", f.Name, f.Usage), "%q is not a valid value for --%s: %v",
			strings.Join(hide(f.Name, values), ","), f.Name, err)
	}
	f.Changed = true
	return nil
}

func hide(flag string, values []string) []string {
	if slices.Contains(secrets, flag) {
		return []string{"(hidden)"}
	}
	return values
}

// Shown is the value of a flag without what could be a secret.
func Shown(f *pflag.Flag) string {
	if !slices.Contains(secrets, f.Name) {
		return f.Value.String()
	}
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		if f.Value.String() == "" {
			return ""
		}
		return "hidden"
	}
	var names []string
	for _, s := range list.GetSlice() {
		name, _, named := strings.Cut(s, "=")
		if !named {
			name = "hidden"
		}
		names = append(names, name)
	}
	return "[" + strings.Join(names, ",") + "]"
}

// pairs are what a flag such as --tags takes, written as YAML has it: {host: web1} for host=web1.
func pairs(m map[string]any) []any {
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return list
}

func pairsWithin(section map[string]any) {
	for key, v := range section {
		if m, ok := v.(map[string]any); ok {
			section[key] = pairs(m)
		}
	}
}

// file is what a file says.
type file struct {
	path   string
	values map[string]any
}

func open(cmd *cobra.Command, env func(string) string) (*file, error) {
	path := env(Variable(fileFlag))
	if f := cmd.Flags().Lookup(fileFlag); f != nil && f.Changed {
		path = f.Value.String()
	}
	if path == "" {
		return &file{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, job.Invalid("--config", "name a file that can be read", "%v", err)
	}
	content := map[string]any{}
	if err := jobfile.Unmarshal(data, path, &content); err != nil {
		var e *job.Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, job.Invalid("--config", "write flags by their names: node-id: n1", "%s is not YAML: %s", path,
			strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	// One file may serve several commands: what is below the name of a command is for that one only.
	own := map[string]any{}
	sections := map[string]map[string]any{}
	known := knownSettings(cmd.Root())
	for key, v := range content {
		section, ok := v.(map[string]any)
		_, command := known[key]
		if command && v == nil {
			continue // everything below it is commented out
		}
		if !ok {
			own[key] = v
			continue
		}
		if !command {
			own[key] = pairs(section)
			continue
		}
		pairsWithin(section)
		sections[key] = section
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		for _, key := range slices.Sorted(maps.Keys(sections[name])) {
			if !slices.Contains(known[name], key) {
				return nil, unknown(path, name+"."+key, known[name])
			}
		}
	}
	var all []string
	for _, names := range known {
		all = append(all, names...)
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if !slices.Contains(all, key) {
			return nil, unknown(path, key, append(slices.Sorted(maps.Keys(known)), known[cmd.Name()]...))
		}
	}
	maps.Copy(own, sections[cmd.Name()])
	return &file{path, own}, nil
}

// set sets a flag that the file names.
func (f *file) set(flag *pflag.Flag) (where string, err error) {
	v, ok := f.values[flag.Name]
	if !ok || v == nil {
		return "", nil
	}
	var list []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			list = append(list, fmt.Sprint(e))
		}
	default:
		list = []string{fmt.Sprint(v)}
	}
	return f.path, set(flag, f.path+": "+flag.Name, list)
}

// knownSettings are the settings of every command that has --config.
func knownSettings(root *cobra.Command) map[string][]string {
	known := map[string][]string{}
	for _, c := range root.Commands() {
		if c.Flags().Lookup(fileFlag) == nil {
			continue
		}
		c.InheritedFlags() // which puts them among the flags
		var names []string
		_ = each(c, func(f *pflag.Flag) error {
			names = append(names, f.Name)
			return nil
		})
		known[c.Name()] = names
	}
	return known
}

func unknown(path, key string, names []string) error {
	word := strings.ReplaceAll(key[strings.LastIndexByte(key, '.')+1:], "_", "-")
	return job.Invalid("--config", "use the names of flags: "+strings.Join(names, ", "), "%s: there is no setting %q%s",
		path, key, job.Suggest(word, names))
}

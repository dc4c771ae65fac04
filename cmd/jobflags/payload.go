package jobflags

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// kindFlags are the flags that the types of job have registered.
type kindFlags struct {
	flags []executor.Flag
	texts map[string]*string
	lists map[string]*[]string
	bools map[string]*bool
}

func (f *kindFlags) register(fl *pflag.FlagSet) {
	f.texts, f.lists, f.bools = map[string]*string{}, map[string]*[]string{}, map[string]*bool{}
	for _, k := range executor.Kinds() {
		for _, c := range k.Submit {
			for _, flag := range append([]executor.Flag{c.Flag}, c.With...) {
				if fl.Lookup(flag.Name) == nil { // types may share one
					f.add(fl, flag)
				}
			}
		}
	}
}

func (f *kindFlags) add(fl *pflag.FlagSet, flag executor.Flag) {
	f.flags = append(f.flags, flag)
	switch flag.Form {
	case executor.List:
		f.lists[flag.Name] = fl.StringArray(flag.Name, nil, flag.Help)
	case executor.Switch:
		f.bools[flag.Name] = fl.Bool(flag.Name, false, flag.Help)
	default:
		f.texts[flag.Name] = fl.String(flag.Name, "", flag.Help)
	}
}

func (f *kindFlags) given(flag executor.Flag) bool {
	switch flag.Form {
	case executor.List:
		return f.List(flag.Name) != nil
	case executor.Switch:
		return f.On(flag.Name)
	}
	return f.Text(flag.Name) != ""
}

// payload is what the job does, from the flags that say so. A flag that does not belong to that kind of job is refused:
// it would otherwise be dropped in silence.
func (f *kindFlags) payload() (job.Type, json.RawMessage, error) {
	var typ job.Type
	var chosen executor.Choice
	n := 0
	for _, k := range executor.Kinds() {
		for _, c := range k.Submit {
			if f.given(c.Flag) {
				typ, chosen = k.Type, c
				n++
			}
		}
	}
	if n != 1 {
		return "", nil, usage("give one of "+Choices()+", or a file", "%s",
			map[bool]string{true: "the job has nothing to do", false: "the job has more than one thing to do"}[n == 0])
	}
	for _, flag := range f.flags {
		own := func(o executor.Flag) bool { return o.Name == flag.Name }
		if f.given(flag) && flag.Name != chosen.Name && !slices.ContainsFunc(chosen.With, own) {
			return "", nil, usage("leave it out", "--%[2]s does not apply to a %[1]s job", chosen.Name, flag.Name)
		}
	}
	p, err := chosen.Payload(f)
	if err != nil {
		return typ, nil, err
	}
	raw, err := jsontext.Marshal(p)
	return typ, raw, err
}

// Choices are the flags that say what a job does.
func Choices() string {
	var names []string
	for _, k := range executor.Kinds() {
		for _, c := range k.Submit {
			names = append(names, "--"+c.Name)
		}
	}
	return strings.Join(names, ", ")
}

// What follows makes it an executor.Input. A name that no type registered is a mistake of the type that asks for it.

func (f *kindFlags) Text(name string) string { return *f.texts[name] }

func (f *kindFlags) List(name string) []string { return *f.lists[name] }

func (f *kindFlags) On(name string) bool { return *f.bools[name] }

func (f *kindFlags) JSON(name string) (json.RawMessage, error) {
	return value("--"+name, f.Text(name))
}

func (f *kindFlags) Pairs(name string) (map[string]string, error) {
	return values.Pairs("--"+name, f.List(name))
}

func (f *kindFlags) Headers(name string) (map[string]string, error) {
	return values.Headers(f.List(name))
}

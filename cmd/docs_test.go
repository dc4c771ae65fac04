package cmd

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every field of a job is in the description of the job file.
func TestDocsHaveEveryField(t *testing.T) {
	text := read(t, "../docs/jobs.md")
	var fields func(prefix string, typ reflect.Type)
	fields = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(text, "`"+prefix+name+"`") {
				t.Errorf("docs/jobs.md does not mention `%s%s`", prefix, name)
			}
			inside := f.Type
			if inside.Kind() == reflect.Pointer {
				inside = inside.Elem()
			}
			if inside.Kind() == reflect.Struct {
				fields(prefix+name+".", inside)
			}
		}
	}
	fields("", reflect.TypeFor[job.Spec]())
	type schema struct{ Properties map[string]json.RawMessage }
	var properties func(prefix string, raw []byte)
	properties = func(prefix string, raw []byte) {
		var s schema
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		for name, inside := range s.Properties {
			if !strings.Contains(text, "`"+prefix+name+"`") {
				t.Errorf("docs/jobs.md does not mention `%s%s`", prefix, name)
			}
			properties(prefix+name+".", inside)
		}
	}
	for _, k := range job.Kinds() {
		properties("", []byte(k.Schema))
	}
}

// Every command and every flag is in the description of the command line.
func TestDocsHaveEveryCommand(t *testing.T) {
	text, jobs := read(t, "../docs/cli.md"), read(t, "../docs/jobs.md")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" {
				continue
			}
			if path := sub.CommandPath(); !strings.Contains(text, "`"+path+"`") && !strings.Contains(text, "`"+path+" ") {
				t.Errorf("docs/cli.md does not mention `%s`", path)
			}
			sub.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				// Those that a type of job has may stand where the type is described.
				if f.Name != "help" && !strings.Contains(text, "--"+f.Name) &&
					!(sub.Name() == "submit" && strings.Contains(jobs, "--"+f.Name)) {
					t.Errorf("docs/cli.md does not mention --%s of %s", f.Name, sub.CommandPath())
				}
			})
			walk(sub)
		}
	}
	walk(newApp().root())
}

// In the help of a flag, pflag takes what stands in backquotes for the name of its value.
func TestHelpOfFlagsHasNoBackquotes(t *testing.T) {
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", c.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	root := newApp().root()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { root.Flags().AddFlag(f) })
	look(root)
}

// Every error code is in the description of the API.
func TestDocsHaveEveryCode(t *testing.T) {
	text := read(t, "../docs/api.md")
	for _, code := range []job.Code{job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeTooLarge,
		job.CodeNotFound, job.CodeDuplicateName, job.CodeVersionConflict,
		job.CodeOverlap, job.CodeState, job.CodeKeyReused, job.CodeStale, job.CodeNotLeader, job.CodeNoLeader,
		job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable,
		job.CodeStorageFull, job.CodeUnauthenticated, job.CodeForbidden, job.CodeMethodNotAllowed, job.CodeUnsupportedMedia,
		job.CodePrecondition, job.CodeInternal,
		job.CodeSessionUnknown, job.CodeUnknownQueue, job.CodeWorkerNameInUse, job.CodeDiskLow} {
		if !strings.Contains(text, "`"+string(code)+"`") {
			t.Errorf("docs/api.md does not mention %s", code)
		}
	}
}

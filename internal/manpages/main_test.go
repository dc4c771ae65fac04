package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd"
)

// asCommand makes this test the command line.
const asCommand = "CARILLON_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(cmd.Main())
	}
	os.Exit(m.Run())
}

func written(t *testing.T) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every command that help lists has a page, which has nothing of the machine that it was made on, and is the same when
// it is made again.
func TestEveryCommandHasAPage(t *testing.T) {
	t.Setenv("CARILLON_ADDR", "10.11.12.13:7400")
	dir, again := written(t), written(t)
	pages := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, "man1", name))
		if err != nil {
			t.Error(err)
			return
		}
		pages++
		if !strings.Contains(string(page), ".SH SYNOPSIS") || strings.Contains(string(page), "10.11.12.13") {
			t.Errorf("%s:\n%s", name, page)
		}
		if other, err := os.ReadFile(filepath.Join(again, "man1", name)); err != nil || string(other) != string(page) {
			t.Errorf("%s is another one the second time: %v", name, err)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(cmd.CommandLine())
	if pages < 50 {
		t.Errorf("%d pages", pages)
	}
}

func TestPagesAreSound(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	pages, err := filepath.Glob(filepath.Join(written(t), "man1", "*"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	out, err := exec.Command(groff, append([]string{"-man", "-ww", "-z", "-Tutf8"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// A tab in bash, with what the package bash-completion would say of the line.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `
compopt() { :; } # it works at a real tab only
carillon() { ` + asCommand + `=1 "$EXE" "$@"; }
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
source "$COMPLETION"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_carillon
printf '%s\n' "${COMPREPLY[@]}"`
	completion := filepath.Join(written(t), "completions", "carillon.bash")
	for line, want := range map[string]string{
		"carillon sub":        "submit",
		"carillon jobs pau":   "pause",
		"carillon jobs -o ya": "yaml",
	} {
		c := exec.Command(bash, append([]string{"--norc", "-c", script, "bash"}, strings.Fields(line)...)...)
		c.Env = append(os.Environ(), "EXE="+exe, "COMPLETION="+completion, "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

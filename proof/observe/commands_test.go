package observe

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Commands that the documents tell a person in a hurry to type are there, with their flags.
func TestCommandsOfRunbooks(t *testing.T) {
	long(t)
	t.Parallel()
	binary := harness.Build(t)
	span := regexp.MustCompile("(?:`|\n)carillon ([^`\n]+)")
	word, flag := regexp.MustCompile(`^[a-z][a-z-]*$`), regexp.MustCompile(`--[a-z][a-z-]*`)
	// help is what the program says of a command; "" if there is none of that name.
	help := func(command string) string {
		out, err := exec.Command(binary, append(strings.Fields(command)[1:], "--help")...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\n  "+command) {
			return ""
		}
		return string(out)
	}
	helps := map[string]string{}
	looked := 0
	for _, path := range []string{runbooks, observeDoc} {
		for _, m := range span.FindAllStringSubmatch(read(t, path), -1) {
			command := "carillon"
			for _, w := range strings.Fields(m[1]) {
				if !word.MatchString(w) {
					break
				}
				if _, known := helps[command+" "+w]; !known {
					helps[command+" "+w] = help(command + " " + w)
				}
				if helps[command+" "+w] == "" {
					if strings.Contains(helps[command], "Available Commands:") {
						t.Errorf("%s: %s has no command %s", path, command, w)
					}
					break // an argument
				}
				command += " " + w
			}
			looked++
			if command == "carillon" {
				t.Errorf("%s: there is no command carillon %s", path, m[1])
				continue
			}
			for _, f := range flag.FindAllString(m[1], -1) {
				if !strings.Contains(helps[command], f) {
					t.Errorf("%s: %s has no %s", path, command, f)
				}
			}
		}
	}
	if looked < 50 {
		t.Errorf("only %d commands were looked at", looked)
	}
}

package crontab

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// command makes the payload of what stands after the times and the user.
func (t *table) command(l *Line, text string) (p job.ShellPayload, ok bool) {
	for len(text) > 1 && text[0] == '-' { // cronie's and OpenBSD's options
		option, rest := cutField(text)
		for _, o := range option[1:] {
			switch o {
			case 'n': // mail only if it fails: nothing else is mailed here
			case 'q': // do not log
			case 's': // one at a time
				l.Job.Overlap = job.OverlapSkip
			default:
				l.fail("%q is not an option of cron: use -n, -q or -s", option)
				return p, false
			}
		}
		text = rest
	}
	command, input, hasInput := splitInput(text)
	if strings.TrimSpace(command) == "" {
		l.fail("there is no command")
		return p, false
	}
	if strings.HasSuffix(command, `\`) && !hasInput {
		l.note("cron does not join lines: the \\ at the end is part of the command")
	}
	env := t.environment()
	shell := env["SHELL"]
	if hasInput {
		if !bourne.MatchString(shell) {
			l.fail("the text after %% is the command's input, which cannot be written as a script for %s: put it "+
				"into a script file", shell)
			return p, false
		}
		command = hereDocument(command, input)
	}
	p = job.ShellPayload{Env: env, Dir: env["HOME"]}
	if shell == "/bin/sh" {
		p.Command = command
	} else {
		p.Argv = []string{shell, "-c", command}
	}
	if p.Dir != "" && !path.IsAbs(p.Dir) {
		l.fail("HOME=%s is not an absolute path", p.Dir)
		return p, false
	}
	return p, true
}

var bourne = regexp.MustCompile(`(^|/)(sh|bash|dash|ash|ksh|mksh|zsh)$`)

// splitInput cuts a command at its first % that has no \ before it: what follows is its input, with a line end for
// every further one.
func splitInput(text string) (command, input string, ok bool) {
	command, rest, ok := unescape(text, true)
	if !ok {
		return command, "", false
	}
	input, _, _ = unescape(rest, false)
	if input == "" {
		return command, "", false // cron writes nothing then
	}
	if !strings.HasSuffix(input, "\n") {
		input += "\n"
	}
	return command, input, true
}

// unescape makes % of \% and leaves any other \ as it is. It stops at the first bare %, or makes line ends of them.
func unescape(s string, stop bool) (text, rest string, stopped bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			if i++; s[i] != '%' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
		case c == '%' && stop:
			return b.String(), s[i+1:], true
		case c == '%':
			b.WriteByte('\n')
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", false
}

// hereDocument gives a command its input in the shell's own way. The quotes keep it as it is.
func hereDocument(command, input string) string {
	end := "END"
	for n := 2; slices.Contains(strings.Split(input, "\n"), end); n++ {
		end = fmt.Sprintf("END%d", n)
	}
	return fmt.Sprintf("{ %s\n} <<'%s'\n%s%s\n", command, end, input, end)
}

var (
	assignmentRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	unnamable    = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	// numberRE is what a wrapper takes, such as the 10 of nice -n 10 and timeout 10m.
	numberRE = regexp.MustCompile(`^[0-9]+[smhd]?$`)
)

// preludes prepare for the command that comes after them; wrappers run another program, or a script: the job is named
// after what they run.
var (
	preludes = strings.Fields("cd test [ [[ if ! export set source . umask ulimit sleep : true " +
		"mkdir rm touch echo date trap")
	wrappers = strings.Fields("nice ionice flock timeout sudo env exec command nohup setsid chronic time stdbuf eval " +
		"then sh bash dash zsh ksh python python2 python3 perl php ruby node java Rscript run-parts")
	partsRE = regexp.MustCompile(`&&|\|\||;|\|`)
)

// name makes a name of what a command runs; the second of a name gets a number.
func (t *table) name(p *job.ShellPayload) string {
	text := p.Command
	if text == "" {
		text = p.Argv[len(p.Argv)-1]
	}
	name := t.o.Prefix + programName(text)
	t.names[name]++
	if n := t.names[name]; n > 1 {
		for {
			numbered := fmt.Sprintf("%s-%d", name, n)
			if t.names[numbered] == 0 {
				t.names[numbered] = 1
				return numbered
			}
			n++
			t.names[name] = n
		}
	}
	return name
}

func programName(command string) string {
	first := ""
	for _, part := range partsRE.Split(command, -1) {
		locks := false
		for _, word := range strings.Fields(part) {
			word = strings.Trim(word, `"'(){}&`)
			base := strings.Trim(unnamable.ReplaceAllString(path.Base(word), "-"), "-.")
			prelude := slices.Contains(preludes, word)
			wrapper := slices.Contains(wrappers, base)
			if first == "" && (prelude || wrapper) {
				first = base
			}
			if prelude {
				break
			}
			switch {
			case base == "" || word[0] == '-' || assignmentRE.MatchString(word) || numberRE.MatchString(word):
			case wrapper:
				locks = base == "flock"
			case locks: // its file
				locks = false
			default:
				return clip(base)
			}
		}
	}
	return clip(cmp.Or(first, "job"))
}

func clip(name string) string {
	if len(name) > 60 {
		name = strings.TrimRight(name[:60], "-.")
	}
	if strings.HasPrefix(name, "j_") || strings.HasPrefix(name, "r_") { // ids begin so
		name = "cron-" + name
	}
	return name
}

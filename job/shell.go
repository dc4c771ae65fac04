package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ShellPayload is the payload of a shell job: a script for /bin/sh, or an argv that no shell touches.
type ShellPayload struct {
	Command string            `json:"command,omitempty"`
	Argv    []string          `json:"argv,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	User    string            `json:"user,omitempty"` // whose rights it has; empty: as the worker decides
	Limits  ShellLimits       `json:"limits,omitzero"`
}

// ShellLimits bound what one attempt may use; 0: as the worker decides.
type ShellLimits struct {
	Memory    Size     `json:"memory,omitempty"`
	Processes int      `json:"processes,omitempty"`
	CPU       Duration `json:"cpu,omitempty"` // of one process
	OpenFiles int      `json:"open_files,omitempty"`
	FileSize  Size     `json:"file_size,omitempty"`
}

// Size is a number of bytes; as JSON "512MiB", or a number.
type Size int64

var sizeUnits = []struct {
	name string
	n    Size
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
	{"kB", 1e3}, {"B", 1}}

// ParseSize reads 512MiB, 2GB or a bare number of bytes.
func ParseSize(s string) (Size, error) {
	number, unit := strings.TrimSpace(s), Size(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(n), u.n
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/int64(unit) {
		return 0, fmt.Errorf("%q is not a size: use a number with a unit, such as 512MiB", s)
	}
	return Size(n) * unit, nil
}

func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && s%u.n == 0 {
			return strconv.FormatInt(int64(s/u.n), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Set and Type make it a flag.
func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// Type is what a flag's help calls it.
func (*Size) Type() string { return "size" }

func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

func (s *Size) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	return s.Set(text)
}

var userRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// UserName says whether a text can be the name of a user of a worker's machine.
func UserName(s string) bool { return userRE.MatchString(s) }

// ShellVariable says whether a job may set a variable of this name for its command.
func ShellVariable(name string) bool {
	return envRE.MatchString(name) && !strings.HasPrefix(name, "CARILLON_")
}

// CheckShell checks the payload of a shell job.
func CheckShell(data []byte) *Error {
	var p ShellPayload
	if err := decodePayload(data, &p); err != nil {
		return err
	}
	if (p.Command == "") == (len(p.Argv) == 0) {
		return Invalid("payload.command", "set command (a script for /bin/sh) or argv, not both",
			"a shell job needs a command or an argv")
	}
	if len(p.Argv) > 0 &&
		(p.Argv[0] == "" || slices.ContainsFunc(p.Argv, func(a string) bool { return strings.ContainsRune(a, 0) })) {
		return Invalid("payload.argv", "", "the program is empty, or there is a zero byte")
	}
	if p.Dir != "" && !filepath.IsAbs(p.Dir) {
		return Invalid("payload.dir", "use an absolute path", "%q is relative", p.Dir)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Env)) {
		v := p.Env[k]
		if !ShellVariable(k) || strings.ContainsRune(v, 0) {
			return Invalid("payload.env", "use letters, digits and _; CARILLON_… is set by Carillon",
				"%q is not a usable variable", k)
		}
	}
	if strings.ContainsRune(p.Command, 0) {
		return Invalid("payload.command", "", "the command contains a zero byte")
	}
	if p.User != "" && !UserName(p.User) {
		return Invalid("payload.user", "use the name of a user of the worker's machine", "%q is not the name of a user",
			p.User)
	}
	return p.Limits.check("payload.limits.")
}

// check says which limit makes no sense; prefix stands before the name of the field.
func (l ShellLimits) check(prefix string) *Error {
	switch {
	case l.Memory != 0 && l.Memory < 1<<20:
		return Invalid(prefix+"memory", `use at least "1MiB"`, "no program runs in %s", l.Memory)
	case l.Processes < 0:
		return Invalid(prefix+"processes", "use a positive number", "%d processes", l.Processes)
	case l.CPU != 0 && l.CPU < Duration(time.Second):
		return Invalid(prefix+"cpu", "use at least 1s", "%s of CPU time is too little: it is counted in seconds", l.CPU)
	case l.OpenFiles < 0 || l.OpenFiles > 0 && l.OpenFiles < 8:
		return Invalid(prefix+"open_files", "use at least 8", "no program runs with %d open files", l.OpenFiles)
	case l.FileSize < 0:
		return Invalid(prefix+"file_size", "use a positive size", "%s is not a file size", l.FileSize)
	}
	return nil
}

// Validate checks limits that do not come from a job; names of fields are those of a job.
func (l ShellLimits) Validate() error {
	if err := l.check(""); err != nil {
		return err
	}
	return nil
}

package output

import (
	"os"
	"path/filepath"
	"regexp"
)

// built is where `go run` keeps a program: in a temporary directory, or in the cache of builds.
var built = regexp.MustCompile(`/go-build\d+/b\d+/exe/[^/]+$|/[0-9a-f]{64}-d/[^/]+$`)

// Program is what to type for this program, so that a hint can be pasted as it is printed.
func Program() string {
	path, err := os.Executable()
	if err != nil {
		return "carillon"
	}
	return program(path)
}

func program(path string) string {
	if built.MatchString(filepath.ToSlash(path)) {
		return "go run ."
	}
	return "carillon"
}

package output

import "testing"

// A hint names the program as it is run.
func TestHintsNameTheProgramAsItIsRun(t *testing.T) {
	const hash = "33332a52eef08c1323568bea1ef1cc3b46c7c7655cd93839f326d0bd83bea472"
	for path, want := range map[string]string{
		"/tmp/go-build3612005846/b001/exe/carillon":            "go run .",
		"/home/ada/.cache/go-build/33/" + hash + "-d/carillon": "go run .",
		"/usr/bin/carillon":                     "carillon",
		"/tmp/go-build3612005846/b001/cmd.test": "carillon",
		"/home/ada/go-builds/carillon":          "carillon",
		"/home/ada/carillon/./carillon":         "carillon",
	} {
		if got := program(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

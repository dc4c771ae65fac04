package packages

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func parsed(t *testing.T, path string) (file map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root(), path))), &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return file
}

// The release on a host with Docker builds the packages that deploy/release builds: .goreleaser.yaml repeats
// deploy/nfpm.yaml in its own words.
func TestGoreleaserHasThePackagesOfNfpm(t *testing.T) {
	own, other := parsed(t, "deploy/nfpm.yaml"), parsed(t, ".goreleaser.yaml")
	theirs := other["nfpms"].([]any)[0].(map[string]any)

	// The binary comes from its build there, and the version from the tag.
	binary, rest := own["contents"].([]any)[0], own["contents"].([]any)[1:]
	if dst := binary.(map[string]any)["dst"]; dst != theirs["bindir"].(string)+"/carillon" {
		t.Errorf("the binary is %v", dst)
	}
	own["contents"], own["package_name"] = rest, own["name"]
	for _, o := range own["overrides"].(map[string]any) {
		o := o.(map[string]any)
		o["dependencies"] = o["depends"]
		delete(o, "depends")
	}
	for _, key := range []string{"name", "arch", "platform", "version", "version_schema"} {
		delete(own, key)
	}
	for _, key := range []string{"bindir", "mtime", "formats", "file_name_template"} {
		delete(theirs, key)
	}
	for _, file := range []map[string]any{own, theirs} {
		for key := range file {
			if !reflect.DeepEqual(own[key], theirs[key]) {
				t.Errorf("%s differs:\n%v\n%v", key, own[key], theirs[key])
			}
		}
	}
	if len(rest) < 15 {
		t.Errorf("only %d contents", len(rest))
	}

	// So do the binaries, and where they run.
	build := other["builds"].([]any)[0].(map[string]any)
	line := instructions(t, "Dockerfile")["RUN"][1]
	flags, _, _ := strings.Cut(build["ldflags"].([]any)[0].(string), "v{{")
	if !strings.Contains(line, flags) || !strings.HasPrefix(line, build["env"].([]any)[0].(string)+" go build "+build["flags"].([]any)[0].(string)) {
		t.Errorf("the image is built by\n%s\nand a release by\n%v", line, build)
	}
	script := read(t, filepath.Join(root(), "deploy/release"))
	platforms := regexp.MustCompile(`for platform in ([a-z0-9/ ]+); do`).FindStringSubmatch(script)[1]
	var targets []string
	for _, target := range build["targets"].([]any) {
		parts := strings.Split(target.(string), "_")
		targets = append(targets, parts[0]+"/"+parts[1])
		if v := map[string]string{"amd64": "GOAMD64", "arm64": "GOARM64"}[parts[1]] + "=" + parts[2]; !strings.Contains(script, v) {
			t.Errorf("deploy/release does not set %s", v)
		}
	}
	if strings.Join(targets, " ") != platforms {
		t.Errorf("%s, and %s", targets, platforms)
	}
}

// instructions are those of a Dockerfile, by their names; of a file with several stages those of one.
func instructions(t *testing.T, path string, stage ...string) map[string][]string {
	t.Helper()
	all, from := map[string][]string{}, ""
	for _, line := range lines(read(t, filepath.Join(root(), path))) {
		word, rest, _ := strings.Cut(line, " ")
		if word == "FROM" {
			from = rest
		}
		if word != "#" && (len(stage) == 0 || strings.HasSuffix(from, " AS "+stage[0])) {
			all[word] = append(all[word], rest)
		}
	}
	return all
}

// The image with a shell is the plain one but for its base and who is process 1, and a release makes both of them as
// the sources do.
func TestImagesAgree(t *testing.T) {
	plain, shell := instructions(t, "Dockerfile"), instructions(t, "deploy/Dockerfile.shell")
	const tini = `["/usr/bin/tini", "--", `
	if got := shell["ENTRYPOINT"]; len(got) != 1 || strings.Replace(got[0], tini, "[", 1) != plain["ENTRYPOINT"][0] || !strings.HasPrefix(got[0], tini) {
		t.Errorf("process 1 is %s", got)
	}
	packages := shell["RUN"][len(shell["RUN"])-1]
	if !strings.Contains(packages, "--no-install-recommends ca-certificates tini &&") || !reflect.DeepEqual(shell["RUN"][:len(shell["RUN"])-1], plain["RUN"]) {
		t.Errorf("%q", shell["RUN"])
	}
	certificates := "--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/"
	copies := slices.DeleteFunc(slices.Clone(plain["COPY"]), func(s string) bool { return s == certificates })
	if !reflect.DeepEqual(shell["COPY"], copies) || len(copies) != len(plain["COPY"])-1 {
		t.Errorf("%q", shell["COPY"])
	}
	for _, word := range []string{"USER", "VOLUME", "EXPOSE", "CMD", "HEALTHCHECK"} {
		if !reflect.DeepEqual(plain[word], shell[word]) || len(plain[word]) != 1 {
			t.Errorf("%s: %q, %q", word, plain[word], shell[word])
		}
	}
	for stage, want := range map[string]map[string][]string{"plain": plain, "shell": shell} {
		got := instructions(t, "deploy/Dockerfile.release", stage)
		for _, word := range []string{"USER", "VOLUME", "EXPOSE", "CMD", "HEALTHCHECK", "ENTRYPOINT"} {
			if !reflect.DeepEqual(got[word], want[word]) {
				t.Errorf("%s of a release: %s: %q, %q", stage, word, got[word], want[word])
			}
		}
		if n := len(want["COPY"]); !reflect.DeepEqual(got["COPY"], want["COPY"][n-len(got["COPY"]):]) || len(got["COPY"]) < 3 {
			t.Errorf("%s of a release: %q, %q", stage, got["COPY"], want["COPY"])
		}
		base, _, _ := strings.Cut(got["FROM"][0], " ")
		if base != want["FROM"][1] {
			t.Errorf("%s of a release is made from %s", stage, base)
		}
	}
	if got := instructions(t, "deploy/Dockerfile.release", "shell")["RUN"]; !reflect.DeepEqual(got, []string{packages}) {
		t.Errorf("%q", got)
	}
}

func TestScriptsCanBeRead(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(root(), "deploy/packages/*/p*"))
	if err != nil || len(scripts) < 7 {
		t.Fatalf("%q %v", scripts, err)
	}
	for _, path := range append(scripts, filepath.Join(root(), "deploy/release"), filepath.Join(root(), "deploy/stage")) {
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

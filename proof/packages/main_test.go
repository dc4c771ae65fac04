package packages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// version is what the packages are built as. Without its tag nothing else has it.
const version = "0.0.1"

// shared is removed when all tests have ended: the release and the root file system are made once.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "carillon-packages-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := harness.Main(m)
	if err := os.RemoveAll(shared); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// needs marks a test that the plain run leaves out, with the programs that it calls.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() || !harness.Long() {
		t.Skip("a long scenario; set CARILLON_LONG=1")
	}
	for _, name := range append(programs, "git") {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
}

// run is what a program prints on both of its outputs.
func run(c *exec.Cmd) (string, error) {
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, out)
	}
	return string(out), err
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(exec.Command(name, args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// root is the directory of the sources.
func root() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// released is the directory with the files of a release, made by deploy/release of what is committed.
var released = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "release")
	_, err := run(exec.Command(filepath.Join(root(), "deploy/release"), "v"+version, dir))
	return dir, err
})

func release(t *testing.T) string {
	t.Helper()
	dir, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// later builds packages of a later version out of the same files: the deb and the rpm, in this order.
var later = sync.OnceValues(func() ([]string, error) {
	from, err := released()
	if err != nil {
		return nil, err
	}
	sources, dir := root(), filepath.Join(shared, "later")
	out := filepath.Join(dir, "out")
	const script = `mkdir -p "$OUT" stage/man1 && tar -xzf "$RELEASE"/*_linux_amd64.tar.gz --strip-components=1 -C stage
mv stage/man/man1/*.1 stage/man1 && gzip stage/man1/*.1 && gzip -c stage/CHANGELOG.md >stage/changelog.gz
cp stage/changelog.gz stage/changelog.Debian.gz
cp -r "$SOURCES"/deploy "$SOURCES"/LICENSE "$SOURCES"/README.md "$SOURCES"/CHANGELOG.md .
echo '# a line that this version adds' >>deploy/packages/server.yaml
(cd "$SOURCES" && go build -modfile=tools/go.mod -o "$OUT/../nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)
for p in deb rpm; do VERSION=0.0.2 ARCH=amd64 ./nfpm package -f deploy/nfpm.yaml -p $p -t "$OUT"; done`
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c := exec.Command("sh", "-ec", script)
	c.Dir, c.Env = dir, append(os.Environ(), "OUT="+out, "SOURCES="+sources, "RELEASE="+from)
	if _, err := run(c); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(out, "carillon*"))
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Ext(a), filepath.Ext(b)) })
	if err == nil && len(files) != 2 {
		err = fmt.Errorf("two packages, not %q", files)
	}
	return files, err
})

// base is a root file system of the Debian that the image with a shell has, with the packages of that image and rpm.
var base = sync.OnceValues(func() (string, error) {
	if os.Getuid() != 0 {
		return "", errSkip
	}
	image, err := os.ReadFile(filepath.Join(root(), "deploy/Dockerfile.shell"))
	if err != nil {
		return "", err
	}
	suite := regexp.MustCompile(`(?m)^FROM debian:(\w+)-slim$`).FindSubmatch(image)
	list := regexp.MustCompile(`--no-install-recommends ([a-z -]+) &&`).FindSubmatch(image)
	if suite == nil || list == nil {
		return "", errors.New("deploy/Dockerfile.shell does not say what it is made of")
	}
	dir := filepath.Join(shared, "base")
	_, err = run(exec.Command("debootstrap", "--variant=minbase",
		"--include="+strings.ReplaceAll(string(list[1]), " ", ",")+",rpm", string(suite[1]), dir))
	return dir, err
})

var errSkip = errors.New("it needs root")

// machine is a copy of the root file system, for one test.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	from, err := base()
	if errors.Is(err, errSkip) {
		t.Skip("only root can change its root directory")
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(shared, "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, "cp", "-a", "--reflink=auto", from+"/.", dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &machine{t, dir}
}

// try runs a command line there.
func (m *machine) try(line string) (string, error) {
	c := exec.Command("chroot", m.dir, "/bin/sh", "-ec", line)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	c.Dir = "/"
	return run(c)
}

func (m *machine) run(line string) string {
	m.t.Helper()
	out, err := m.try(line)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// has compares what a command line prints there.
func (m *machine) has(line, want string) {
	m.t.Helper()
	out, err := m.try(line)
	if got := strings.TrimSpace(out); err != nil || got != want {
		m.t.Errorf("%s: %q, want %q (%v)", line, got, want, err)
	}
}

// copy puts a file of this machine into the root directory of the other.
func (m *machine) copy(path string) string {
	m.t.Helper()
	must(m.t, "cp", path, m.dir)
	return "/" + filepath.Base(path)
}

// pretend makes scripts believe that systemd runs; calls is what they asked it for since the last call.
func (m *machine) pretend() (calls func() string) {
	m.t.Helper()
	m.run("mkdir -p /run/systemd/system; : >/calls")
	for _, name := range []string{"systemctl", "deb-systemd-invoke"} {
		m.run(fmt.Sprintf(`printf '#!/bin/sh\necho "%s $*" >>/calls\n' >/usr/bin/%s; chmod 755 /usr/bin/%s`, name, name, name))
	}
	return func() string {
		out := m.run("cat /calls; : >/calls")
		return strings.TrimSpace(out)
	}
}

// lines is a text without empty lines.
func lines(text string) (all []string) {
	for l := range bytes.Lines([]byte(text)) {
		if s := strings.TrimSpace(string(l)); s != "" {
			all = append(all, s)
		}
	}
	return all
}

package packages

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// files are those of both packages, with modes and owners; what has no line must not be there.
var files = map[string]string{
	"/etc/carillon/server.yaml":                          "-rw-r----- root:carillon",
	"/etc/carillon/worker.yaml":                          "-rw-r----- root:carillon-worker",
	"/usr/bin/carillon":                                  "-rwxr-xr-x root:root",
	"/usr/lib/systemd/system/carillon.service":           "-rw-r--r-- root:root",
	"/usr/lib/systemd/system/carillon-worker.service":    "-rw-r--r-- root:root",
	"/usr/share/bash-completion/completions/carillon":    "-rw-r--r-- root:root",
	"/usr/share/fish/vendor_completions.d/carillon.fish": "-rw-r--r-- root:root",
	"/usr/share/man/man1/carillon.1.gz":                  "-rw-r--r-- root:root",
	"/usr/share/man/man1/carillon-server.1.gz":           "-rw-r--r-- root:root",
}

// compare holds the files of a package to the list; manual pages beyond those in it are counted.
func compare(t *testing.T, got map[string]string, more map[string]string) {
	t.Helper()
	pages := 0
	for path, mode := range got {
		want, ok := files[path]
		if !ok {
			want, ok = more[path]
		}
		if strings.HasPrefix(path, "/usr/share/man/man1/carillon") {
			pages, want, ok = pages+1, "-rw-r--r-- root:root", true
		}
		if !ok || mode != want {
			t.Errorf("%s is %s, want %q", path, mode, want)
		}
	}
	for _, list := range []map[string]string{files, more} {
		for path := range list {
			if got[path] == "" {
				t.Errorf("there is no %s", path)
			}
		}
	}
	if pages < 50 {
		t.Errorf("%d manual pages", pages)
	}
}

func TestDebContents(t *testing.T) {
	needs(t, "dpkg-deb", "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		deb := filepath.Join(release(t), "carillon_"+version+"-1_"+arch+".deb")
		out, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for r := tar.NewReader(bytes.NewReader(out)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			mode := fmt.Sprintf("%s %s:%s", h.FileInfo().Mode(), h.Uname, h.Gname)
			path := "/" + strings.Trim(strings.TrimPrefix(h.Name, "."), "/")
			if h.Uid != 0 || h.Gid != 0 {
				t.Errorf("%s has the numbers of this machine: %d:%d", path, h.Uid, h.Gid)
			}
			if mode != "drwxr-xr-x root:root" { // directories that others have as well
				got[path] = mode
			}
		}
		compare(t, got, map[string]string{
			"/usr/share/doc/carillon/changelog.Debian.gz": "-rw-r--r-- root:root",
			"/usr/share/doc/carillon/changelog.gz":        "-rw-r--r-- root:root",
			"/usr/share/doc/carillon/copyright":           "-rw-r--r-- root:root",
			"/usr/share/lintian/overrides/carillon":       "-rw-r--r-- root:root",
			"/usr/share/zsh/vendor-completions/_carillon": "-rw-r--r-- root:root",
		})
		if got := must(t, "dpkg-deb", "-f", deb, "Package", "Version", "Architecture", "Depends"); !slices.Equal(lines(got),
			[]string{"Package: carillon", "Version: " + version + "-1", "Architecture: " + arch, "Depends: adduser"}) {
			t.Errorf("%s", got)
		}
	}
	out, err := exec.Command("lintian", "--allow-root", "--tag-display-limit", "0",
		filepath.Join(release(t), "carillon_"+version+"-1_amd64.deb")).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("E: ")) {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

func TestRPMContents(t *testing.T) {
	needs(t, "rpm")
	for _, arch := range []string{"x86_64", "aarch64"} {
		file := filepath.Join(release(t), "carillon-"+version+"-1."+arch+".rpm")
		got := map[string]string{}
		list := must(t, "rpm", "-qp", "--qf", `[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]`, file)
		for _, l := range lines(list) {
			path, mode, _ := strings.Cut(l, " ")
			got[path] = mode
		}
		compare(t, got, map[string]string{
			"/etc/carillon":                           "drwxr-xr-x root:root",
			"/usr/share/doc/carillon/CHANGELOG.md":    "-rw-r--r-- root:root",
			"/usr/share/doc/carillon/README.md":       "-rw-r--r-- root:root",
			"/usr/share/licenses/carillon/LICENSE":    "-rw-r--r-- root:root",
			"/usr/share/zsh/site-functions/_carillon": "-rw-r--r-- root:root",
			"/var/lib/carillon":                       "drwx------ carillon:carillon",
		})
		head := must(t, "rpm", "-qp", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST}", file)
		if head != "carillon "+version+"-1 "+arch+" Apache-2.0 carillon" {
			t.Errorf("%q", head)
		}
		if got := lines(must(t, "rpm", "-qpc", file)); !slices.Equal(got, []string{"/etc/carillon/server.yaml", "/etc/carillon/worker.yaml"}) {
			t.Errorf("configuration: %q", got)
		}
	}
}

const (
	hint    = "carillon: nothing was started.\n  on a node: set node-id, listen, cluster and keys-from in /etc/carillon/server.yaml"
	ownYAML = `echo 'node-id: mine' >/etc/carillon/server.yaml`
)

// installed holds what an installed package leaves, whichever of the two it is.
func (m *machine) installed() {
	m.t.Helper()
	if out := m.run("carillon version"); !strings.HasPrefix(out, "carillon v"+version+" ") {
		m.t.Errorf("the binary of the package is %s", out)
	}
	m.has("stat -c '%A %U:%G' /etc/carillon /etc/carillon/server.yaml /etc/carillon/worker.yaml /var/lib/carillon",
		"drwxr-xr-x root:root\n-rw-r----- root:carillon\n-rw-r----- root:carillon-worker\ndrwx------ carillon:carillon")
	m.has("getent passwd carillon carillon-worker | cut -d: -f1,6,7 | sed 's|/usr/sbin/|/sbin/|'",
		"carillon:/var/lib/carillon:/sbin/nologin\ncarillon-worker:/var/lib/carillon-worker:/sbin/nologin")
	m.has("id -Gn carillon", "carillon")
	m.has("id -Gn carillon-worker", "carillon-worker")
	// Each service reads its own settings, and nobody else does.
	for _, c := range []struct {
		user, group, kind string
		reads             bool
	}{{"carillon", "carillon", "server", true}, {"carillon-worker", "carillon-worker", "worker", true}, {"carillon-worker", "carillon-worker", "server", false},
		{"carillon", "carillon", "worker", false}, {"nobody", "nogroup", "server", false}} {
		out, err := m.try(fmt.Sprintf("setpriv --reuid %s --regid %s --init-groups carillon config show %s --config /etc/carillon/%s.yaml",
			c.user, c.group, c.kind, c.kind))
		if c.reads != (err == nil) {
			m.t.Errorf("%s.yaml, read by %s: %v %s", c.kind, c.user, err, out)
		}
	}
}

// Install, upgrade, remove and purge, first where systemd does not run, then where it seems to.
func TestDebOnAMachine(t *testing.T) {
	needs(t, "debootstrap", "dpkg-deb")
	next, err := later()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	first, second := m.copy(filepath.Join(release(t), "carillon_"+version+"-1_amd64.deb")), m.copy(next[0])
	if out := m.run("dpkg -i " + first); !strings.Contains(out, hint) {
		t.Errorf("an install says:\n%s", out)
	}
	m.installed()

	// What the operator wrote stays, without a question, also the mode that they chose.
	m.run(ownYAML + "; chmod 600 /etc/carillon/server.yaml; echo x >/var/lib/carillon/state; echo k >/etc/carillon/worker.token")
	calls := m.pretend()
	if out := m.run("dpkg --force-confold -i " + second); strings.Contains(out, hint) {
		t.Errorf("an upgrade says:\n%s", out)
	}
	m.has("grep -c mine /etc/carillon/server.yaml; stat -c %a /etc/carillon/server.yaml; cat /var/lib/carillon/state", "1\n600\nx")
	want := "systemctl --system daemon-reload\ndeb-systemd-invoke try-restart carillon.service carillon-worker.service"
	if got := calls(); got != want {
		t.Errorf("an upgrade asks systemd:\n%s", got)
	}

	m.run("dpkg -r carillon")
	if got := calls(); got != "deb-systemd-invoke stop carillon.service carillon-worker.service\nsystemctl --system daemon-reload" {
		t.Errorf("a removal asks systemd:\n%s", got)
	}
	m.has("ls /usr/bin/carillon 2>&1 || true", "ls: cannot access '/usr/bin/carillon': No such file or directory")
	m.has("grep -c mine /etc/carillon/server.yaml; cat /var/lib/carillon/state", "1\nx")

	out := m.run("dpkg -P carillon")
	if !strings.Contains(out, "/var/lib/carillon is kept; rm -r /var/lib/carillon deletes it for good") {
		t.Errorf("a purge says:\n%s", out)
	}
	m.has("test ! -e /etc/carillon; cat /var/lib/carillon/state; getent passwd carillon | cut -d: -f1", "x\ncarillon")
	calls()

	// Again, over what is left; nothing is started or enabled.
	m.run("dpkg -i " + first)
	if got := calls(); got != "systemctl --system daemon-reload" {
		t.Errorf("an install asks systemd:\n%s", got)
	}
	m.installed()
	m.run("rm /var/lib/carillon/state; dpkg -P carillon")
	m.has("ls -d /var/lib/carillon* /etc/carillon 2>/dev/null || true", "")
}

func TestRPMOnAMachine(t *testing.T) {
	needs(t, "debootstrap")
	next, err := later()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	first, second := m.copy(filepath.Join(release(t), "carillon-"+version+"-1.x86_64.rpm")), m.copy(next[1])
	// The database of rpm knows nothing of what Debian installed, and so not of useradd either.
	if out := m.run("rpm -i --nodeps " + first); !strings.Contains(out, hint) {
		t.Errorf("an install says:\n%s", out)
	}
	m.installed()

	m.run(ownYAML + "; echo x >/var/lib/carillon/state")
	calls := m.pretend()
	if out := m.run("rpm -U --nodeps " + second); strings.Contains(out, hint) {
		t.Errorf("an upgrade says:\n%s", out)
	}
	m.has("grep -c mine /etc/carillon/server.yaml; ls /etc/carillon; cat /var/lib/carillon/state", "1\nserver.yaml\nserver.yaml.rpmnew\nworker.yaml\nx")
	if got := calls(); got != "systemctl daemon-reload\nsystemctl daemon-reload\nsystemctl try-restart carillon.service carillon-worker.service" {
		t.Errorf("an upgrade asks systemd:\n%s", got)
	}

	m.run("rpm -e --nodeps carillon")
	if got := calls(); got != "systemctl --no-reload disable --now carillon.service carillon-worker.service\nsystemctl daemon-reload" {
		t.Errorf("a removal asks systemd:\n%s", got)
	}
	m.has("test ! -e /usr/bin/carillon; grep -c mine /etc/carillon/server.yaml.rpmsave; cat /var/lib/carillon/state", "1\nx")
}

// Two builds of one commit have the same bytes, whatever the umask, the zone and the language of who builds; and what
// the checksums name is what is there.
func TestReleaseIsReproducible(t *testing.T) {
	needs(t)
	first, second := release(t), filepath.Join(t.TempDir(), "again")
	c := exec.Command("sh", "-ec", `umask 077; exec "$0" "$@"`, filepath.Join(root(), "deploy/release"), version, second)
	c.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "GOFLAGS=-buildvcs=false", "SOURCE_DATE_EPOCH=1", "TMPDIR="+t.TempDir())
	if _, err := run(c); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, dir := range []string{first, second} {
		check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
		check.Dir = dir
		if _, err := run(check); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for _, e := range entries {
			if e.Name() != "SHA256SUMS" {
				names = append(names, e.Name())
			}
		}
	}
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	if again := read(t, filepath.Join(second, "SHA256SUMS")); sums != again {
		t.Errorf("one commit, two releases:\n%s\n%s", sums, again)
	}
	var want []string
	for _, p := range []string{"linux_amd64", "linux_arm64", "darwin_arm64"} {
		want = append(want, "carillon_"+version+"_"+p+".tar.gz", "carillon_"+version+"_"+p+".cdx.json")
	}
	for _, p := range []string{"_%s-1_amd64.deb", "_%s-1_arm64.deb", "-%s-1.x86_64.rpm", "-%s-1.aarch64.rpm"} {
		want = append(want, "carillon"+fmt.Sprintf(p, version))
	}
	if slices.Sort(want); !slices.Equal(names, want) || len(lines(sums)) != len(want) {
		t.Errorf("%q, want %q;\n%s", names, want, sums)
	}
}

// An archive has a static binary of the version that it is named after, made of the commit, with its manual.
func TestReleaseArchives(t *testing.T) {
	needs(t)
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_arm64"} {
		dir, name := t.TempDir(), "carillon_"+version+"_"+platform
		must(t, "tar", "-xzf", filepath.Join(release(t), name+".tar.gz"), "-C", dir)
		dir = filepath.Join(dir, name)
		for _, path := range []string{"LICENSE", "README.md", "CHANGELOG.md", "man/man1/carillon.1", "completions/_carillon", "completions/carillon.bash",
			"completions/carillon.fish"} {
			read(t, filepath.Join(dir, path))
		}
		bin := filepath.Join(dir, "carillon")
		commit := strings.TrimSpace(must(t, "git", "rev-parse", "HEAD"))
		made := must(t, "go", "version", "-m", bin)
		for _, want := range []string{"vcs.revision=" + commit, "vcs.modified=false", "CGO_ENABLED=0", "-trimpath=true",
			"GOOS=" + platform[:strings.IndexByte(platform, '_')], "GOARCH=" + platform[strings.IndexByte(platform, '_')+1:]} {
			if !strings.Contains(made, want+"\n") {
				t.Errorf("%s is not made with %s:\n%s", name, want, made)
			}
		}
		if strings.Contains(read(t, bin), "/lib64/ld-linux") {
			t.Errorf("%s is not static", name)
		}
		if platform == "linux_amd64" {
			want := regexp.MustCompile(`^carillon v` + regexp.QuoteMeta(version) + ` \(` + commit[:12] + `\) `)
			if out := must(t, bin, "version"); !want.MatchString(out) {
				t.Errorf("%s", out)
			}
		}
		if list := read(t, filepath.Join(release(t), name+".cdx.json")); !strings.Contains(list, `"bomFormat": "CycloneDX"`) ||
			!strings.Contains(list, "pkg:golang/go.etcd.io/bbolt@") {
			t.Errorf("%s", list)
		}
	}
}

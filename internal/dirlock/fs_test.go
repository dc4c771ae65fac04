package dirlock

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x5346414f: "AFS", 0x6b414653: "AFS",
		0x00c36400: "Ceph", 0x65735546: "FUSE", 0x0bd00bd0: "Lustre", 0x19830326: "BeeGFS", 0x47504653: "GPFS", 0x7461636f: "OCFS2", 0x786f4256: "vboxsf",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "", 0x2fc12fc1: "", 0xf2f52010: "", 0xca451a4e: "", 0: "",
	} {
		kind, name := Classify(magic)
		if name != want || (kind == Shared) != (want != "") {
			t.Errorf("%#x is %q, %d; want %q", magic, name, kind, want)
		}
	}
}

func TestInspectLooksAtWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kind, name, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	k, n, err := Inspect(filepath.Join(dir, "not", "yet"))
	if k != kind || n != name || err != nil {
		t.Errorf("%v %q %v, and its parent %v %q", k, n, err, kind, name)
	}
}

func TestRefusalNamesTheFlags(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"NFS", "FUSE"} {
		text := Refuse("data directory", "/srv/x", name, "--data-dir").Error()
		for _, want := range []string{"data directory /srv/x", name, "--data-dir", "--allow-network-fs"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q", text, want)
			}
		}
	}
}

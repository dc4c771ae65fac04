package dirlock

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kind is what a file system says about the worth of a lock on it.
type Kind int

const (
	// Local is one that a single kernel writes to, or one that is not known: a lock that was granted is the only one.
	Local Kind = iota
	// Shared is one that several kernels may write to. Whether they see each other's locks depends on the server, its
	// version and the mount options (nolock, local_lock, nobrl, localflocks), which none of them can find out.
	Shared
)

// shared are the file systems that are refused unless allowed, by the magic number of statfs(2).
var shared = map[uint32]string{
	0x6969:     "NFS",
	0x6e667364: "nfsd",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9p",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x00c36400: "Ceph",
	// FUSE has one number for sshfs, GlusterFS, s3fs and virtiofs and for those on a local disk. It is the program
	// behind it that decides what a lock, a memory map and an fsync are worth.
	0x65735546: "FUSE",
	0x0bd00bd0: "Lustre",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x47504653: "GPFS",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0xaad7aaea: "PanFS",
	0xbeefdead: "StoreNext",
	0x013111a8: "IBRIX",
	0x61636673: "ACFS",
	0x786f4256: "vboxsf",
	0x7c7c6673: "prl_fs",
	0xbacbacbc: "vmhgfs",
}

// Classify says what the file system with a magic number is, and its name if it is a shared one.
func Classify(magic uint32) (Kind, string) {
	if name, ok := shared[magic]; ok {
		return Shared, name
	}
	return Local, ""
}

// FileSystem says on what kind of file system a path is, and its name.
type FileSystem func(path string) (Kind, string, error)

// Inspect looks at the file system that a directory is on or, if it is not there yet, will be.
func Inspect(dir string) (Kind, string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Local, "", err
	}
	for {
		magic, known, err := magicOf(dir)
		switch {
		case err == nil && !known:
			return Local, "", nil
		case err == nil:
			kind, name := Classify(magic)
			return kind, name, nil
		case !os.IsNotExist(err) || filepath.Dir(dir) == dir:
			return Local, "", fmt.Errorf("statfs %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

// Refuse is why a directory on a shared file system is not used. flag is the one that it was given with.
func Refuse(what, dir, name, flag string) error {
	sure := "if no other machine uses the directory"
	if name == "FUSE" {
		sure = "if it is backed by a disk of this machine alone"
	}
	return fmt.Errorf("%s %s is on a network file system (%s), where a file lock does not reliably keep a second "+
		"process out: choose a local disk with %s or, %s, add --allow-network-fs",
		what, dir, name, flag, sure)
}

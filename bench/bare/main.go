// Bare is the limit: claim and complete entries of the same size through the same Raft and bbolt settings as a node's,
// with nothing around them. No schedule, no worker, no fence, no check; three processes on the loopback interface,
// fsync on. What a node does in a second is compared with what this does.
//
//	go run ./bench/bare -runs 500000 -jobs 500000
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

func main() {
	runs := flag.Int("runs", 500_000, "claims and completions to push")
	jobs := flag.Int("jobs", 500_000, "due entries in the store")
	batch := flag.Int("batch", 1024, "items of an entry")
	flight := flag.Int("flight", 4, "entries on their way")
	dir := flag.String("dir", "", "directory for the files (default a temporary one)")
	node := flag.Int("node", 0, "which of the three this is (the first one starts the others)")
	addrs := flag.String("addrs", "", "addresses of all")
	flag.Parse()
	if err := run(*runs, *jobs, *batch, *flight, *dir, *node, *addrs); err != nil {
		log.Fatal(err)
	}
}

func run(runs, jobs, batch, flight int, dir string, node int, list string) (err error) {
	if node > 0 {
		n, err := open(node, jobs, dir, strings.Split(list, ","))
		if err != nil {
			return err
		}
		buf := make([]byte, 1)
		_, _ = os.Stdin.Read(buf) // the end of the first one is ours
		return n.raft.Shutdown().Error()
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "bare-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	var addrs []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addrs = append(addrs, ln.Addr().String())
		ln.Close()
	}
	for i := 1; i < 3; i++ {
		c := exec.Command(os.Args[0], "-node", strconv.Itoa(i), "-jobs", strconv.Itoa(jobs), "-dir", dir, "-addrs",
			strings.Join(addrs, ","))
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		defer c.Wait()
		defer in.Close()
	}
	n, err := open(0, jobs, dir, addrs)
	if err != nil {
		return err
	}
	for n.raft.State() != raft.Leader || n.raft.AppliedIndex() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // the others fill their stores
	if err := n.raft.Barrier(time.Minute).Error(); err != nil {
		return err
	}
	begin := time.Now()
	if err := n.push(runs, batch, flight); err != nil {
		return err
	}
	took := time.Since(begin)
	fmt.Printf("%d runs claimed and completed in %.2f s: %.0f/s (batches of %d, %d in flight, %d jobs)\n", runs,
		took.Seconds(), float64(runs)/took.Seconds(), batch, flight, jobs)
	return n.raft.Shutdown().Error()
}

type node struct{ raft *raft.Raft }

func open(i, jobs int, dir string, addrs []string) (*node, error) {
	dir = filepath.Join(dir, "n"+strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600,
		&bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: 64 << 30})
	if err != nil {
		return nil, err
	}
	f := &machine{db: db}
	if err := f.fill(jobs); err != nil {
		return nil, err
	}
	logs, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db"),
		BoltOptions: &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
			InitialMmapSize: 4 << 30}})
	if err != nil {
		return nil, err
	}
	quiet := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	tcp, err := net.ResolveTCPAddr("tcp", addrs[i])
	if err != nil {
		return nil, err
	}
	trans, err := raft.NewTCPTransportWithLogger(addrs[i], tcp, 3, 10*time.Second, quiet)
	if err != nil {
		return nil, err
	}
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(strconv.Itoa(i))
	c.MaxAppendEntries, c.CommitTimeout, c.Logger = 512, 5*time.Millisecond, quiet
	if i > 0 { // the first one leads
		c.HeartbeatTimeout, c.ElectionTimeout = 10*time.Second, 10*time.Second
	}
	var all raft.Configuration
	for j, a := range addrs {
		all.Servers = append(all.Servers,
			raft.Server{ID: raft.ServerID(strconv.Itoa(j)), Address: raft.ServerAddress(a)})
	}
	snaps := raft.NewDiscardSnapshotStore()
	if err := raft.BootstrapCluster(c, logs, logs, snaps, trans, all); err != nil {
		return nil, err
	}
	r, err := raft.NewRaft(c, f, logs, logs, snaps, trans)
	return &node{r}, err
}

// push sends claim and complete entries, a number of them on their way at a time.
func (n *node) push(runs, batch, flight int) error {
	open := make(chan raft.ApplyFuture, flight)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for f := range open {
			if err := f.Error(); err != nil {
				failed <- err
				return
			}
		}
	}()
	for from := 0; from < runs; from += batch {
		for _, kind := range []byte{'c', 'd'} {
			open <- n.raft.Apply(entry(kind, from, min(batch, runs-from)), time.Minute)
		}
	}
	close(open)
	return <-failed
}

// entry is as long as that of a node: 13 bytes a claim, 20 a completion.
func entry(kind byte, from, n int) []byte {
	size := 13
	if kind == 'd' {
		size = 20
	}
	b := make([]byte, 9+n*size)
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(from))
	binary.BigEndian.PutUint32(b[5:], uint32(n))
	return b
}

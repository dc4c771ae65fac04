package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// What an operator sees who has the states of all replicas compared: that they agree; whose state differs, whether it
// follows or leads, with what is to be done about it; and that a node could not be compared.
func TestClusterScrub(t *testing.T) {
	for _, leads := range []bool{false, true} {
		dirs, nodes := map[string]string{}, map[string]*node.Node{}
		var join []string
		for _, id := range []string{"n1", "n2", "n3"} {
			dirs[id] = t.TempDir()
			nodes[id] = openNodeIn(t, dirs[id], id, 0, join...)
			join = []string{nodes["n1"].Addr()}
		}
		s, odd, asked := newShell(t), "n3", "n2"
		run := func(args ...string) (string, string, int) {
			return s.run("", append(args, "--addr", nodes[asked].Addr())...)
		}
		status := func() client.Status {
			st, err := client.New(nodes[asked].Addr()).Status(t.Context())
			if err != nil {
				t.Log(err)
			}
			return st
		}
		eventually := func(what string, cond func() bool) {
			t.Helper()
			for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if cond() {
					return
				}
			}
			t.Fatalf("never: %s", what)
		}
		voters := func() (n int) {
			for _, m := range status().Members {
				if m.Suffrage == "voter" {
					n++
				}
			}
			return n
		}
		eventually("three voters", func() bool { return voters() == 3 && status().Leader != "" })
		const text = "this is the text of the job that is damaged;"
		more := strings.Repeat("it is long, so that bbolt gives it a page that other commits leave alone; ", 30)
		if _, errOut, code := s.run(`{"name":"a","type":"queue","schedule":"@manual","payload":{"queue":"q","data":"`+text+more+`"}}`,
			"submit", "-", "--addr", nodes["n1"].Addr()); code != 0 {
			t.Fatal(errOut)
		}
		if leads {
			if odd = status().Leader; odd == asked {
				asked = "n3"
			}
		}
		state := filepath.Join(dirs[odd], datadir.StateFile)
		read := func() []byte {
			data, err := os.ReadFile(state)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		eventually("it has the job", func() bool { return bytes.Contains(read(), []byte(text)) })
		out, errOut, code := run("cluster", "scrub")
		if code != exit.OK || out != "all voting replicas agree\n" {
			t.Fatal(code, out, errOut)
		}

		f, err := os.OpenFile(state, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		data := read()
		for from := 0; ; {
			i := bytes.Index(data[from:], []byte(text))
			if i < 0 {
				break
			}
			from += i + 1
			if _, err := f.WriteAt([]byte{data[from] ^ 1}, int64(from)); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		out, errOut, code = run("cluster", "scrub")
		if code != exit.Failure || !strings.Contains(out, odd) || strings.Contains(out, "agree") {
			t.Error(code, out, errOut)
		}
		eventually("the others go on without it", func() bool {
			out, errOut, code = run("cluster", "scrub")
			return code == exit.Failure && strings.Contains(out, "not compared, or not all of it: "+odd) &&
				strings.Contains(out, "! node "+odd+" takes no part") && strings.Contains(out, "stop node "+odd+", run `carillon node rebuild ")
		})
	}
}

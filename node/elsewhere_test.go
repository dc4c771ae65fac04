package node

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// A node whose data directory has a cluster of its own, of one group, does not join another one of several by the way,
// and does not go on alone as if it had. It is told what it has, and nothing is changed.
func TestJoinWithAClusterOfItsOwn(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := &cluster{t: t}
			first := there.begin(mode, func(c *Config) { c.Groups = 2 })
			begins := func(*Config) {}
			if name == "secure" {
				begins, _ = securely(t)
			}
			here := &cluster{t: t}
			own := here.begin(begins, func(c *Config) { c.NodeID = "n9" })
			id := own.group.store.Info().ClusterID
			own.stop()
			before, err := os.ReadFile(own.dir.File(datadir.NodeFile))
			if err != nil {
				t.Fatal(err)
			}
			joins := own.cfg
			joins.Bootstrap, joins.Join = false, []string{"127.0.0.1:1", first.cfg.Listen}
			joins.Machine.Listen = nil
			if mode(&joins); name == "secure" {
				joins.Keys.From = ""
			}
			if n, err := Open(joins); err == nil {
				n.Kill()
				t.Error("it was not refused")
			} else {
				for _, want := range []string{"--join", first.cfg.Listen, "a cluster of its own, " + id, "empty the data directory"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want %q", err, want)
					}
				}
			}
			after, err := os.ReadFile(own.dir.File(datadir.NodeFile))
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s: %s, %v", before, after, err)
			}
			if rows, err := first.members.Rows(); err != nil || len(rows) != 1 {
				t.Errorf("%v %v", rows, err)
			}
			own.restart() // without --join it goes on

			// With a second member it goes on as well: their cluster must not stop for an address in a unit file.
			second := here.newMember("n8", own.joinAddr(), begins)
			here.members = append(here.members, second)
			second.open(t)
			t.Cleanup(second.kill)
			here.awaitVoters(2)
			second.stop()
			second.cfg.Join = []string{first.cfg.Listen}
			second.restart()
		})
	}
}

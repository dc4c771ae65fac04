package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
)

// The volume of a follower is put back from an earlier time: it votes and gets entries again only when the current one is back.
func TestRolledBackVolumeIsRefused(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3, func(c *Config) { c.Executors = nil })
	lead := c.leader()
	back := c.others(lead)[0]
	back.stop()
	early, current := filepath.Join(t.TempDir(), "early"), filepath.Join(t.TempDir(), "current")
	copyDir(t, back.cfg.DataDir, early)
	back.restart()
	lead.create(unclaimedJob("acknowledged"))
	back.eventually("it has the job", func() bool { return back.has("acknowledged") })
	index := back.group.store.Counters().Index
	lead.eventually("the leader knows that", func() bool {
		var m client.Member
		for _, x := range lead.status("").Members {
			if x.ID == back.id() {
				m = x
			}
		}
		return m.Applied >= index
	})
	back.crash()
	back.stop()
	copyDir(t, back.cfg.DataDir, current)
	put := func(from string) {
		t.Helper()
		if err := os.RemoveAll(back.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, from, back.cfg.DataDir)
		back.link = &link{}
		back.open(t)
	}
	put(early)
	back.eventually("it says why", func() bool {
		err := back.members.ready()
		return err != nil && strings.Contains(err.Error(), "put back from an earlier time") && strings.Contains(err.Error(), "carillon cluster remove "+back.id())
	})
	if back.has("acknowledged") {
		t.Error("it gets entries")
	}
	back.stop()
	put(current)
	back.eventually("it works again", func() bool { return back.members.ready() == nil && back.has("acknowledged") })
}

package node

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// numbers are those of the records of a node's own state.
func (n *testNode) numbers() (out []uint64) {
	n.t.Helper()
	err := n.group.store.View(func(v *store.View) error {
		return v.EachAudit(0, func(seq uint64, _ store.Audit) bool {
			out = append(out, seq)
			return true
		})
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// The numbers of records go on without a gap in what is restored from a backup or recovered, and the backup has its own
// record.
func TestAuditNumbersOverRestoreAndRecover(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	dir := t.TempDir()
	n := start(t, dir)
	n.create(r.spec("a", "@manual"))
	n.create(r.spec("b", "@manual"))
	good := n.backup()
	if got := n.numbers(); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Fatalf("%v", got)
	}
	n.create(r.spec("later", "@manual"))
	n.stop()

	cfg := restoreConfig(t, good)
	if _, err := datadir.Restore(cfg); err != nil {
		t.Fatal(err)
	}
	restored := startHeld(t, cfg.DataDir)
	ok[wire.ReleaseResult](restored, "POST", "/api/v1/cluster:release", nil)
	restored.eventually("ready", func() bool { return restored.service.Ready() == nil })
	restored.create(r.spec("c", "@manual"))
	restored.stop()

	if _, err := datadir.Recover(cfg.DataDir, map[string]string{"n1": "127.0.0.1:9"}, quiet); err != nil {
		t.Fatal(err)
	}
	recovered := start(t, cfg.DataDir)
	recovered.create(r.spec("d", "@manual"))
	if got := recovered.numbers(); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("%v", got)
	}
	var actions []string
	for _, a := range recovered.audits() {
		actions = append(actions, a.Action+" "+a.Object+a.ID[:min(len(a.ID), 2)])
	}
	if a := recovered.audits(); a[2].Action != "backup.create" || a[3].Action != "cluster.release" || a[4].Object != "c" || a[5].Object != "d" {
		t.Errorf("%q", actions)
	}
	recovered.stop()
	if res, err := datadir.Check(cfg.DataDir); err != nil || len(res.Problems) > 0 {
		t.Errorf("%+v %v", res, err)
	}
}

package membership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// common is the feature level that every server supports; 0 if one of them has not said yet.
func common(rows map[string]store.Node, servers []raft.Server) int {
	level := 0
	for i, s := range servers {
		r := rows[replica.Node(s.ID)] // without a row: 0
		if i == 0 || r.Level < level {
			level = r.Level
		}
	}
	return level
}

// raise commits the feature level that every member supports before anything else of a term is done: a new cluster has
// it from its first moment. What changes later is seen by settle.
func (m *Members) raise(prop forward.Proposer, term uint64) error {
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	level := common(rows, m.Configured())
	if level <= m.o.Store.Info().Level {
		return nil
	}
	if _, err := prop.Propose(&fsm.SetLevel{Head: m.headBeforeStamp(term), Level: level}).Wait(); err != nil {
		return fmt.Errorf("raise the feature level: %w", err)
	}
	return nil
}

// old are the members that do not support a feature level, each with what it has. Who has not said yet, as in a
// cluster's first moments, may.
func (m *Members) old(level int) []string {
	rows, err := m.Rows()
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range m.Configured() {
		id := replica.Node(s.ID)
		if r, ok := rows[id]; ok && r.Level < level {
			out = append(out, fmt.Sprintf("%s (version %s, level %d)", id, r.Version, r.Level))
		}
	}
	slices.Sort(out)
	return out
}

// Allows refuses to propose what a member might not understand.
func (m *Members) Allows(level int) error {
	committed := m.o.Store.Info().Level
	if level <= committed {
		return nil
	}
	old := m.old(level)
	if len(old) == 0 { // a new cluster, or the last one was replaced just now
		return job.Errorf(job.CodeNotReady, "try again in a moment",
			"this needs feature level %d, and the cluster is at level %d until every member has said that it supports more", level, committed)
	}
	return job.Errorf(job.CodeState,
		"start them with the carillon that this node runs, or remove those that are gone for good (carillon cluster remove); the level is raised by itself then",
		"this needs feature level %d, and the cluster is at level %d as long as members are older: %s", level, committed, strings.Join(old, ", "))
}

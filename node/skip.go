package node

import (
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// skipped is what status shows of the entries that a node passes over.
func skipped(entries []datadir.SkippedEntry) (out []client.SkippedEntry) {
	for _, e := range entries {
		out = append(out, client.SkippedEntry(e))
	}
	return out
}

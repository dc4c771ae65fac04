// Package replica names the replicas of a Raft group as raft knows them: a node and the number of its replica. A number
// is never used again, so that a replica which was removed and emptied, and has forgotten its vote, is not taken for
// the one before it.
package replica

import (
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

// First is the number of the replica that a node has of the one group that there is.
const First = 1

const separator = "/" // the last one of an id: a node may have others in its own

// ID is the Raft server id of a node's replica.
func ID(node string, number uint64) raft.ServerID {
	return raft.ServerID(node + separator + strconv.FormatUint(number, 10))
}

// Number is that of the replica that a Raft server id is of; 0: it has none.
func Number(id raft.ServerID) uint64 {
	s := string(id)
	n, err := strconv.ParseUint(s[strings.LastIndex(s, separator)+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Node is the node of a Raft server id; of no id, as of an unknown leader, it is empty.
func Node(id raft.ServerID) string {
	s := string(id)
	return s[:max(strings.LastIndex(s, separator), 0)]
}

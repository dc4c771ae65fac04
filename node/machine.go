package node

import (
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
)

// Machine is what a node stands on: network, disk, time, and the carrying out of attempts. The zero value is the real
// one.
type Machine struct {
	faultpoint.Node
	// Runners stand in for the executors of the local worker.
	Runners     map[job.Type]executor.Runner
	WorkerClock executor.Clock
	// Leader is put between the local worker and the leader.
	Leader func(executor.Leader) executor.Leader
	// ProposeNotice is put between the outbox and the log.
	ProposeNotice func(cmd fsm.Command, next func(fsm.Command) (*fsm.Reply, error)) (*fsm.Reply, error)
}

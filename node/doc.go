// Package node is a running node: it opens the data directory, runs the Raft group with its state machine, leads when
// it is elected, answers the API and works on runs; and it stops all of that in an order that loses nothing.
package node

// Package router brings a request to the Raft group that it is about, or asks all of them and puts their answers
// together. It stands above the handlers of the groups; a cluster of one group has no router.
package router

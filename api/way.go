package api

import (
	"strings"
	"sync"
)

// Way says which node answers the requests of a route. It is the same for all methods of a path.
type Way uint8

// The ways.
const (
	ToLeader Way = iota // the leader answers; the request is small and repeated until it was answered
	Once                // the leader answers, with or from a stream, which is not repeated
	Poll                // the leader answers late; the request is not repeated once it may have been heard
	Here                // the node that was asked answers, whatever it knows
	Asking              // the same, but it asks the leader itself for what only that knows
)

var exceptions = sync.OnceValue(func() (out []route) {
	for _, rt := range routes() {
		if rt.way != ToLeader {
			out = append(out, rt)
		}
	}
	return out
})

// WayOf is the way of the requests for a path. What is not of the API is answered here.
func WayOf(path string) Way {
	if !strings.HasPrefix(path, prefix+"/") {
		return Here
	}
	for _, rt := range exceptions() {
		before, rest, variable := strings.Cut(rt.path, "{")
		_, after, _ := strings.Cut(rest, "}")
		if path == rt.path || variable && strings.HasPrefix(path, before) && strings.HasSuffix(path, after) {
			return rt.way
		}
	}
	return ToLeader
}

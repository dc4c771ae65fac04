package api

import (
	"regexp"
	"testing"
)

// The forwarder knows the path of a request, not its route: the methods of a path go one way.
func TestEveryRouteGoesItsWay(t *testing.T) {
	variable := regexp.MustCompile(`\{\w+\}`)
	for _, rt := range routes() {
		if got := WayOf(variable.ReplaceAllString(rt.path, "some.name")); got != rt.way {
			t.Errorf("%s %s goes way %d, the table says %d", rt.method, rt.path, got, rt.way)
		}
	}
	if WayOf("/") != Here || WayOf(prefix+"/nothing") != ToLeader {
		t.Error("what is not of the API is answered here, what is not known by the leader")
	}
}

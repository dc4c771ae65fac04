package node

import (
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/web"
)

// pageEndpoints are where the page is. It is open to all, on a secure cluster too: it has no data, and the API asks
// its reader for a token.
func pageEndpoints() []api.Endpoint {
	return []api.Endpoint{
		{Path: "/{$}", Role: api.Anyone, Body: api.NoBody, Serve: web.Serve},
		{Path: "/ui", Role: api.Anyone, Body: api.NoBody, Serve: web.Serve},
		{Path: web.Path, Role: api.Anyone, Body: api.NoBody, Serve: web.Serve},
	}
}

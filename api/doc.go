// Package api is the HTTP face of a node: routes, strict decoding, limits, problem+json errors and the OpenAPI
// document. What the routes do is behind Backend; nothing here knows raft or the store.
package api

// Package e2e looks at the page with a real browser, served by the real binary. It has something to do only with the
// build tag carillon_browser, because what drives the browser is half as much code as Carillon, and where there is a
// Chromium:
//
//	go test -tags carillon_browser ./web/e2e
package e2e

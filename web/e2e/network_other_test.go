//go:build carillon_browser && !linux

package e2e

// inOwnNetwork does nothing: there are no network namespaces.
func inOwnNetwork() {}

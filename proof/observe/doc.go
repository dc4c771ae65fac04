// Package observe holds what operators watch a cluster with to the cluster itself: the rules of alerts, the dashboard
// and docs/observe.md name only what real nodes serve, and alerts fire in a real Prometheus when something real is
// wrong.
package observe

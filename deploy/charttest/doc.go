// Package charttest holds the Helm chart to what Kubernetes takes, to what the binary takes, and to the files that it
// has copies of, and replays what its pods do as processes of this machine. It is a module of its own: Helm and the
// types of Kubernetes are for these tests only.
package charttest

// Package job is the domain: what a job, an occurrence, a run and an attempt are, which states and policies they have,
// which errors can be said about them, and what workers and the leader say to each other. It does no I/O and reads no
// clock.
package job

// Package executor is the worker: it takes assignments from the leader, carries out one attempt of each and reports the
// results until they are acknowledged as committed. How one attempt runs is a Runner's business: HTTP, Shell, Message.
//
// A type of job is registered as a Kind, in the file of its runner, with its payload's check and schema and its flags.
// To add one, write such a file and its test, and describe it in docs/jobs.md.
package executor

// Package executor is the worker: it takes assignments from the leader, carries out one attempt of each and reports the
// results until they are acknowledged as committed. How one attempt runs is a Runner's business: HTTP, Shell, Message.
package executor

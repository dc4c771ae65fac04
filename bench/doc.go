// Package bench measures a real cluster: processes, sockets, files with fsync. Every scenario checks its own result
// (each occurrence once, in the history and at the target) before it says how fast it was: a figure for wrong work is
// worth nothing.
package bench

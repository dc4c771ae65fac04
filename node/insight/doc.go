// Package insight turns what the state of a node has into what people look at: what became of each occurrence of a job,
// how runs went. It is pure: the service reads, this counts.
package insight

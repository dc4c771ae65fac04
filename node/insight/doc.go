// Package insight answers those who look: lists and searches, what became of each occurrence of a job, why one waits,
// how runs went. What it makes of the state is pure, and tested without a cluster; Service reads the state for it, in
// short views and with bounds.
package insight

// Package undumpable keeps the memory of a process that holds keys from others of the same user: where the system has
// it, they can neither trace the process nor read its environment, and it leaves no core dump.
package undumpable

// Package keys has what a cluster is known by and what opens it: tokens, keys and certificates.
package keys

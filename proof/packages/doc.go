// Package packages holds the files of a release to what an operator does with them: packages are installed, upgraded,
// removed and purged in a root file system of their own, and the image with a shell runs a shell job.
package packages

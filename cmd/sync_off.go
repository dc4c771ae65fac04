//go:build carillon_nosync

package cmd

// noSync leaves out every fsync. Such a build exists to show that the durability test notices it; it is not for use.
const noSync = true

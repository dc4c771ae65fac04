//go:build !carillon_nosync

package cmd

// noSync is true only in builds that exist to show that the durability test would notice.
const noSync = false

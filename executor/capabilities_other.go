//go:build unix && !linux

package executor

func lacksCapabilities() error { return nil }

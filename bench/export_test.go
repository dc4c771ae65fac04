package bench

// FreeAddr has others choose where nodes listen, until the test ends.
func FreeAddr(choose func() (string, error)) (restore func()) {
	was := freeAddr
	freeAddr = choose
	return func() { freeAddr = was }
}

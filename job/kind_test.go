package job

import "testing"

// Package executor registers the kinds; here are those whose payloads this package describes.
func init() {
	for t, check := range map[Type]func([]byte) *Error{
		TypeHTTP: CheckHTTP, TypeShell: CheckShell, TypeMessage: CheckMessage, TypeQueue: CheckQueue,
	} {
		RegisterKind(Kind{Type: t, Check: check})
	}
}

func TestTypeIsRegisteredOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a second http was accepted")
		}
	}()
	RegisterKind(Kind{Type: TypeHTTP, Check: CheckHTTP})
}

package fsm

import "testing"

// Every command says which feature level brought it, and none is above what this binary supports: an older member stops at what it does
// not know. A new command belongs to the level that is new with it.
func TestEveryCommandHasALevel(t *testing.T) {
	for name, cmd := range everyCommand() {
		l, err := CommandLevel(cmd)
		if err != nil || l < 1 || l > Level {
			t.Errorf("%s: level %d of %d, %v", name, l, Level, err)
		}
	}
	if _, err := CommandLevel(struct{ *Pause }{}); err == nil {
		t.Error("anything is a command")
	}
}

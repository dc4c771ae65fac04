package job

import "testing"

// No request could name a job that paths take for a directory.
func TestNamesThatAreDirectories(t *testing.T) {
	for name, ok := range map[string]bool{".": false, "..": false, "...": true, ".a": true, "a.": true, "": true} {
		s := Spec{Name: name, Type: TypeShell, Schedule: ScheduleManual, Payload: []byte(`{"command":"true"}`)}
		s.Normalize()
		if err := s.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

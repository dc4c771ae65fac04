package schedule

// Error says what is wrong with one field of a schedule or a calendar, and what to write instead.
type Error struct {
	Field  string // the job's field: "schedule", "timezone", "dst_gap", ...; for a calendar its own field
	Msg    string
	Remedy string
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Remedy
}

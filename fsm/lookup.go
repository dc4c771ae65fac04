package fsm

// Lookup reads the stored outcome of a request. It goes through the log because only then is it known that a request
// which is still on its way has not been applied before it.
type Lookup struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
}

func (c *Lookup) apply(a *applier) error {
	o, known, err := a.repeat(c.Request)
	if !known {
		o = Outcome{Code: CodeNotFound}
	}
	a.outcome(o)
	return err
}

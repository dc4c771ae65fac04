package names

import (
	"github.com/carillon-scheduler/carillon/job"
)

// Taken is the error about a name that a job has.
func Taken(id job.ID) error {
	return &job.Error{Code: job.CodeDuplicateName, Field: "name",
		Message: "the job " + id.String() + " has that name already",
		Remedy:  "choose another name, or edit that job"}
}

// Pending is the error about a name that may turn out to be taken, or not to be.
func Pending(name string) error {
	return job.Errorf(job.CodeUnavailable, "try again in a moment",
		"another request may be about to get the name %q; nothing was changed", name)
}

// KeyReused is the error about a key under which something else was asked for.
func KeyReused() error {
	return job.Errorf(job.CodeKeyReused, "use a new key for a new request",
		"this Idempotency-Key belongs to another request")
}

// noAnswer is the error about a home that cannot be asked.
func noAnswer(home uint32, err error) error {
	return job.Errorf(job.CodeUnavailable, "try again in a moment; `carillon status` says more about that group",
		"group %d, which knows whether the name is free, does not answer (%v); nothing was changed", home, err)
}

package exit

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestHintsAreCommands(t *testing.T) {
	for api, want := range map[string]string{
		"GET /api/v1/jobs lists the jobs":                                           "`carillon jobs` lists the jobs",
		"GET /api/v1/jobs/{job}/runs lists the runs of a job; old ones are trimmed": "`carillon runs JOB` lists the runs of a job; old ones are trimmed",
		"GET /api/v1/calendars lists them":                                          "`carillon calendars` lists them",
		"GET /api/v1/dead lists them":                                               "`carillon dead` lists them",
		"name a member; GET /api/v1/status lists them":                              "name a member; `carillon cluster members` lists them",
		"create it first with PUT /api/v1/calendars/holidays":                       "create it first with `carillon calendars set`",
		"choose a shorter interval, or raise max (up to 1000)":                      "choose a shorter interval, or raise --max (up to 1000)",
		"use :run":                                "use `carillon jobs run`",
		"POST /api/v1/jobs/j_2:resume":            "`carillon jobs resume j_2`",
		"POST /api/v1/queues/mail:resume":         "`carillon queues resume mail`",
		"POST /api/v1/jobs/j_7:run runs it now":   "`carillon jobs run j_7` runs it now",
		"repeat it with the same Idempotency-Key": "repeat it with the same --idempotency-key",
		"try again, or read with ?stale=true":     "try again",
		"use an IANA name such as UTC":            "use an IANA name such as UTC",
	} {
		var b strings.Builder
		Text(&b, job.Errorf(job.CodeNotFound, api, "x"), "")
		if got := b.String(); got != "error: x\nhint: "+want+"\n" {
			t.Errorf("%s: %q", api, got)
		}
	}
}

// Who typed a namespace and follows a hint would look into another one without it.
func TestHintsCarryTheNamespace(t *testing.T) {
	for remedy, want := range map[string]string{
		"GET /api/v1/jobs lists the jobs":                       "`carillon jobs -n team-a` lists the jobs",
		"POST /api/v1/jobs/j_2:resume":                          "`carillon jobs resume j_2 -n team-a`",
		"`carillon secret set x -n b`, and `carillon dead`":     "`carillon secret set x -n b`, and `carillon dead -n team-a`",
		"`carillon runs -A` has them, `carillon status` others": "`carillon runs -A` has them, `carillon status` others",
	} {
		if got := AsCommands(remedy, "team-a"); got != want {
			t.Errorf("%s: %s", remedy, got)
		}
	}
}

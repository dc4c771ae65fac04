package cmd

import (
	"regexp"
	"strings"
)

// A node's remedies speak of the API, because that is what it was asked through. Who typed a command is better told a
// command.
var (
	apiPhrases = strings.NewReplacer(
		"GET /api/v1/jobs/{job}/runs lists", "`carillon runs JOB` lists",
		"GET /api/v1/jobs lists", "`carillon jobs` lists",
		"GET /api/v1/runs lists", "`carillon runs` lists",
		"declare it with PUT /api/v1/queues/NAME", "declare it with `carillon queues set NAME --concurrency N`",
		"GET /api/v1/calendars lists", "`carillon calendars` lists",
		"GET /api/v1/dead lists", "`carillon dead` lists",
		"GET /api/v1/status lists", "`carillon cluster members` lists",
		"the same Idempotency-Key", "the same --idempotency-key",
		"with Idempotency-Key ", "with --idempotency-key ",
		"use :run", "use `carillon jobs run`",
		"raise max", "raise --max",
		", or read with ?stale=true", "",
	)
	putCalendar = regexp.MustCompile(`PUT /api/v1/calendars/\S*`)
)

func asCommands(remedy string) string {
	return putCalendar.ReplaceAllString(apiPhrases.Replace(remedy), "`carillon calendars set`")
}

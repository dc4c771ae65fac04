package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// one is a parameter that may be given once.
func (c *call) one(name string) (string, error) {
	v := c.query[name]
	if len(v) > 1 {
		return "", job.Invalid(name, "give it once", "the parameter is given %d times", len(v))
	}
	if len(v) == 0 {
		return "", nil
	}
	return v[0], nil
}

func (c *call) flag(name string) (bool, error) {
	s, err := c.one(name)
	if err != nil || s == "" && !c.query.Has(name) {
		return false, err
	}
	switch s {
	case "true", "1", "":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, job.Invalid(name, "use true or false", "%q is neither true nor false", s)
}

func (c *call) read() (Read, error) {
	stale, err := c.flag("stale")
	return Read{Stale: stale, Space: c.space}, err
}

// page is the part that all lists have in common.
func (c *call) page() (limit int, cursor string, rd Read, err error) { return c.pageOf(defaultPage) }

// pageOf is page where so many rows are usual.
func (c *call) pageOf(usual int) (limit int, cursor string, rd Read, err error) {
	if limit, err = c.limit(usual, maxPage); err == nil {
		cursor, err = c.one("cursor")
	}
	if err == nil {
		cursor, err = c.openCursor(cursor)
	}
	if err == nil {
		rd, err = c.read()
	}
	return limit, cursor, rd, err
}

func (c *call) limit(def, most int) (int, error) {
	s, err := c.one("limit")
	if err != nil || s == "" {
		return def, err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, job.Invalid("limit", "", "%q is not a number between 1 and %d", s, most)
	}
	return n, nil
}

// number is a parameter that counts something; 0 if it is not given.
func (c *call) number(name string) (int, error) {
	s, err := c.one(name)
	if err != nil || s == "" {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, job.Invalid(name, "give a number above 0", "%q is none", s)
	}
	return n, nil
}

// text is a parameter that is looked for in others.
func (c *call) text(name string) (string, error) {
	s, err := c.one(name)
	if err == nil && len(s) > job.MaxName {
		err = job.Invalid(name, "look for a part of it",
			"the text has %d bytes; at most %d are allowed", len(s), job.MaxName)
	}
	return s, err
}

// words are the values of a parameter that may be repeated or hold a list.
func (c *call) words(name string) []string {
	var out []string
	for _, v := range c.query[name] {
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); w != "" {
				out = append(out, w)
			}
		}
	}
	return out
}

var jobStatuses = []string{string(job.StatusScheduled), string(job.StatusPaused), string(job.StatusCompleted),
	string(job.StatusFailed), string(job.StatusQuarantined)}

func (c *call) jobQuery() (q wire.JobQuery, rd Read, err error) {
	if q.Limit, q.Cursor, rd, err = c.page(); err != nil {
		return q, rd, err
	}
	status, err := c.one("status")
	if err == nil {
		err = known("status", status, jobStatuses...)
	}
	if err != nil {
		return q, rd, err
	}
	kind, err := c.one("type")
	if err == nil {
		err = known("type", kind, job.Types()...)
	}
	if err != nil {
		return q, rd, err
	}
	q.Status, q.Type = job.Status(status), job.Type(kind)
	if q.Prefix, err = c.one("prefix"); err != nil {
		return q, rd, err
	}
	if q.Text, err = c.text("q"); err != nil {
		return q, rd, err
	}
	if q.Failing, err = c.flag("failing"); err != nil {
		return q, rd, err
	}
	q.Tags, err = c.tags()
	return q, rd, err
}

// tags are labels that are asked for, each with one value.
func (c *call) tags() (tags map[string]string, err error) {
	for _, pair := range c.query["tag"] {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, job.Invalid("tag", "write tag=team=billing; repeat it for several", "%q is not a tag", pair)
		}
		if old, twice := tags[k]; twice && old != v {
			return nil, job.Invalid("tag", "give one value for each tag",
				"no job can have both %s=%s and %s=%s", k, old, k, v)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[k] = v
	}
	return tags, nil
}

func known(field, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return job.Invalid(field, "use "+strings.Join(allowed, ", "), "%q is not allowed%s", value,
		job.Suggest(value, allowed))
}

var runStatuses = []string{"pending", "waiting", "claimed", "running", "retrying", "canceling", "succeeded", "failed",
	"dead", "skipped", "missed", "expired", "canceled", "lost"}

func (c *call) runQuery() (q wire.RunQuery, rd Read, err error) {
	if q.Limit, q.Cursor, rd, err = c.page(); err != nil {
		return q, rd, err
	}
	for _, w := range c.words("status") {
		if err := known("status", w, runStatuses...); err != nil {
			return q, rd, err
		}
		s, err := job.ParseRunStatus(w)
		if err != nil {
			return q, rd, job.Invalid("status", "", "%v", err)
		}
		if !slices.Contains(q.Statuses, s) {
			q.Statuses = append(q.Statuses, s)
		}
	}
	if q.Job, err = c.one("job"); err != nil {
		return q, rd, err
	}
	if q.From, q.To, err = c.interval(); err != nil {
		return q, rd, err
	}
	if q.Worker, err = c.text("worker"); err != nil {
		return q, rd, err
	}
	q.Error, err = c.text("error")
	return q, rd, err
}

package output

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// JobFile is a job that -o yaml prints as a file, ready for apply.
type JobFile struct{ job.Job }

// Members is a status of which the members are asked for.
type Members struct{ wire.Status }

type jobPage = wire.JobPage

// scope is in what the names of some things are unique.
type scope int

const (
	unnamed scope = iota
	namedInNamespace
	named
)

// name is what commands call one thing: in its namespace, and everywhere.
type name struct{ here, anywhere string }

// names are those of the things in an answer. Its type alone decides whether they have names.
func names(v any) (out []name, s scope) {
	add := func(here, anywhere string) { out = append(out, name{here, cmp.Or(anywhere, here)}) }
	addJob := func(j job.Job) { add(cmp.Or(j.Name, j.ID.String()), j.ID.String()) }
	switch v := v.(type) {
	case job.Job:
		addJob(v)
	case JobFile:
		addJob(v.Job)
	case wire.JobPage:
		for _, j := range v.Jobs {
			addJob(j)
		}
	case job.Run:
		add(v.RunID, "")
	case wire.RunDetail:
		add(v.RunID, "")
	case wire.RunPage:
		for _, r := range v.Runs {
			add(r.RunID, "") // occurrences that did not run have none
		}
	case job.DeadLetter:
		add(strconv.FormatUint(v.Seq, 10), "")
	case wire.DeadPage:
		for _, d := range v.Dead {
			add(strconv.FormatUint(d.Seq, 10), "")
		}
	case wire.Token:
		add(v.ID, "") // of a name there may be several, of which all but one are revoked
	case []wire.Token:
		for _, t := range v {
			add(t.ID, "")
		}
	case wire.JoinToken:
		add(v.ID, "")
	case []wire.JoinToken:
		for _, t := range v {
			add(t.ID, "")
		}
	case Members:
		for _, m := range v.Members {
			add(m.ID, "")
		}
	default:
		return inNamespace(v)
	}
	return out, named
}

func inNamespace(v any) (out []name, s scope) {
	add := func(n string) { out = append(out, name{n, n}) }
	switch v := v.(type) {
	case wire.Queue:
		add(v.Name)
	case []wire.Queue:
		for _, q := range v {
			add(q.Name)
		}
	case schedule.Calendar:
		add(v.Name)
	case []schedule.Calendar:
		for _, c := range v {
			add(c.Name)
		}
	case wire.Secret:
		add(v.Name)
	case []wire.Secret:
		for _, s := range v {
			add(s.Name)
		}
	case interface{ Names() []string }:
		for _, n := range v.Names() {
			add(n)
		}
		return out, named
	default:
		return nil, unnamed
	}
	return out, namedInNamespace
}

// printNames writes one name a line. Over all namespaces that is the one that is known everywhere.
func printNames(w io.Writer, v any, all bool) error {
	list, _ := names(v)
	var b strings.Builder
	last := ""
	for _, n := range list {
		if all {
			n.here = n.anywhere
		}
		if n.here != "" && n.here != last { // each attempt of a run is a record
			b.WriteString(n.here + "\n")
		}
		last = n.here
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// SpecYAML is a spec as a job file, its fields in their usual order. The usual namespace is left out, so that the file
// can be submitted into another.
func SpecYAML(s job.Spec) ([]byte, error) {
	if s.Namespace == job.DefaultNamespace {
		s.Namespace = ""
	}
	raw, err := jsontext.Marshal(s)
	if err != nil {
		return nil, err
	}
	return jobfile.ToYAML(raw)
}

// jobFiles are the jobs of a page as documents that apply takes. Jobs without a name are comments: apply could not find
// them again.
func jobFiles(page wire.JobPage) ([]byte, error) {
	var out bytes.Buffer
	for _, j := range page.Jobs {
		text, err := SpecYAML(j.Spec)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		if j.Name != "" {
			out.Write(text)
			continue
		}
		fmt.Fprintf(&out, "# %s has no name, so apply could not find it; `carillon submit` takes it:\n", j.ID)
		for line := range bytes.Lines(text) {
			out.WriteString("# ")
			out.Write(line)
		}
	}
	return out.Bytes(), nil
}

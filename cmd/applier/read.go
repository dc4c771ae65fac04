package applier

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// The kinds of documents.
const (
	kindJob      = "job"
	kindCalendar = "calendar"
	kindQueue    = "queue"
)

// document is one of the input.
type document struct {
	jobfile.Document
	kind            string
	namespace, name string
	line            []byte // of a job: what is sent
	calendar        schedule.Calendar
	queue           queueFile
	err             error // it cannot be applied
}

// queueFile is a queue as its owner writes it. Whether it is paused is for those who run it to say.
type queueFile struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace,omitempty"`
	Concurrency int    `json:"concurrency"`
}

// where is the place of a document, for people.
func (d *document) where() string {
	if d.Line > 0 {
		return fmt.Sprintf("%s:%d", d.File, d.Line)
	}
	return d.File
}

// title is how a document is called.
func (d *document) title() string {
	if d.kind == kindJob {
		return d.name
	}
	return d.kind + " " + d.name
}

// at puts the place of an error before it.
func (d *document) at(err error) error {
	if d.JSON == nil { // a file that could not be read says so itself
		return err
	}
	return d.At(err)
}

// extensions are those of files in a directory that are read.
var extensions = []string{".yaml", ".yml", ".json", ".ndjson", ".jsonl"}

// Files lists the files that arguments name.
func Files(args []string, recursive bool) (files []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case arg == "-":
			files = append(files, arg)
			continue
		case err != nil:
			return nil, job.Errorf(job.CodeInvalid, "name a file or a directory, or - for standard input", "%v", err)
		case !info.IsDir():
			files = append(files, arg)
			continue
		}
		err = filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err // there may be no entry
			}
			hidden := strings.HasPrefix(e.Name(), ".")
			switch {
			case e.IsDir() && path != arg && (hidden || !recursive):
				return fs.SkipDir
			case e.IsDir() || hidden || !slices.Contains(extensions, filepath.Ext(path)):
				return nil
			}
			files = append(files, path)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// read reads the documents of files. What is wrong with one of them, or with a whole file, is in its err.
func read(files []string, stdin io.Reader) (docs []*document, err error) {
	for _, path := range files {
		in, name := stdin, "standard input"
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return nil, job.Errorf(job.CodeInvalid, "give files that can be read", "%v", err)
			}
			defer f.Close()
			in, name = f, path
		}
		some, err := jobfile.Read(in, name)
		if err != nil {
			docs = append(docs, &document{Document: jobfile.Document{File: name}, err: err})
			continue
		}
		for _, d := range some {
			doc := &document{Document: d}
			if doc.err = doc.decode(); doc.err != nil {
				doc.err = d.At(doc.err)
			}
			docs = append(docs, doc)
		}
	}
	return docs, nil
}

// decode reads what a document says, as far as that needs no node.
func (d *document) decode() error {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(d.JSON, &members); err != nil {
		return job.Errorf(job.CodeMalformed, "docs/jobs.md describes the job file", "a document is an object")
	}
	text := d.JSON
	d.kind = kindJob
	if raw, ok := members["kind"]; ok {
		if err := json.Unmarshal(raw, &d.kind); err != nil {
			return job.Invalid("kind", "use job, calendar or queue", "%s is not a kind", raw)
		}
		delete(members, "kind")
		var err error
		if text, err = json.Marshal(members); err != nil {
			return err
		}
	}
	switch d.kind {
	case kindJob:
		return d.decodeJob(text)
	case kindCalendar:
		if err := job.DecodeStrict(text, &d.calendar); err != nil {
			return err
		}
		d.name, d.namespace = d.calendar.Name, d.calendar.Namespace
		if err := job.CheckCalendarName(d.name); err != nil {
			return err
		}
		if _, err := d.calendar.Compile(); err != nil {
			return wire.ScheduleError(err)
		}
	case kindQueue:
		if _, ok := members["paused"]; ok {
			return job.Invalid("paused", "use `carillon queues pause`, and leave it out",
				"apply does not pause or resume queues")
		}
		if err := job.DecodeStrict(text, &d.queue); err != nil {
			return err
		}
		d.name, d.namespace = d.queue.Name, d.queue.Namespace
		if !job.QueueName(d.name) {
			return job.Invalid("name", "use letters, digits, - _ .", "%q is not a valid queue name", d.name)
		}
	default:
		kinds := []string{kindJob, kindCalendar, kindQueue}
		return job.Invalid("kind", "use job, calendar or queue", "there is no kind %q%s", d.kind,
			job.Suggest(d.kind, kinds))
	}
	if d.name == "" {
		return job.Invalid("name", "give it a name", "the %s has no name", d.kind)
	}
	if d.namespace != "" {
		return job.CheckNamespace(d.namespace)
	}
	return nil
}

func (d *document) decodeJob(text []byte) error {
	spec, err := job.DecodeSpec(text)
	if err != nil {
		return err
	}
	if d.name, d.namespace = strings.TrimSpace(spec.Name), spec.Namespace; d.name == "" {
		return job.Invalid("name", "give it a name, or submit it with `carillon submit`",
			"the job has no name, and apply finds jobs by name")
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	d.line = append(line.Bytes(), '\n')
	return nil
}

// twice refuses input that says two things about one name: it does not say which of them is meant. home is the
// namespace of what names none; it is asked for if only some do.
func twice(docs []*document, home func() (string, error)) error {
	type key struct{ kind, namespace, name string }
	named := func(d *document) bool { return d.namespace != "" }
	usual := ""
	if unnamed := func(d *document) bool { return !named(d) }; slices.ContainsFunc(docs, named) &&
		slices.ContainsFunc(docs, unnamed) {
		var err error
		if usual, err = home(); err != nil {
			return err
		}
	}
	seen := map[key]*document{}
	for _, d := range docs {
		if d.name == "" {
			continue
		}
		k := key{d.kind, cmp.Or(d.namespace, usual), d.name}
		if first := seen[k]; first != nil {
			err := job.Invalid("name", "keep one of them; nothing was changed",
				"%s is already defined in %s", d.title(),
				first.where())
			return d.at(err)
		}
		seen[k] = d
	}
	return nil
}

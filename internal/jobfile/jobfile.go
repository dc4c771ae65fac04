// Package jobfile reads the files that jobs are written in, JSON or YAML, and says in which line a field stands. It
// writes a job as YAML for an editor.
package jobfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/carillon-scheduler/carillon/job"
)

// maxFile bounds what is read as a whole. NDJSON is streamed and has no bound.
const maxFile = 64 << 20

// Document is one object of a file, as JSON.
type Document struct {
	File string
	node ast.Node // of YAML: where its fields stand
	Line int
	JSON []byte
}

// At puts the place of a field before an error about what is in the file.
func (d Document) At(err error) error {
	var e *job.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeTooLarge, job.CodeDuplicateName,
		job.CodeVersionConflict:
	default: // the node's trouble, not the file's
		return err
	}
	line := d.Line
	if e.Field != "" && d.node != nil {
		if n := fieldLine(d.node, e.Field); n > 0 {
			line = n
		}
	}
	if line > 0 {
		return fmt.Errorf("%s:%d: %w", d.File, line, err)
	}
	return fmt.Errorf("%s: %w", d.File, err)
}

// fieldLine finds the line of a field such as "retry.base", or of the deepest part of it that there is.
func fieldLine(node ast.Node, field string) int {
	for f := field; f != ""; f = f[:max(0, strings.LastIndexByte(f, '.'))] {
		b := (&yaml.PathBuilder{}).Root()
		for part := range strings.SplitSeq(f, ".") {
			b = b.Child(part)
		}
		if n, err := b.Build().FilterNode(node); err == nil && n != nil && n.GetToken() != nil {
			// The value of a mapping may begin a line below its key.
			if t := n.GetToken(); t.Prev != nil && t.Prev.Value == ":" {
				return t.Prev.Position.Line
			}
			return n.GetToken().Position.Line
		}
	}
	return 0
}

// LooksLikeLines says whether the input is NDJSON: its first line is a whole object and another one follows.
func LooksLikeLines(in *bufio.Reader) bool {
	head, _ := in.Peek(in.Size())
	head = bytes.TrimLeft(head, " \t\r\n")
	first, rest, ok := bytes.Cut(head, []byte("\n"))
	return ok && len(first) > 0 && first[0] == '{' && json.Valid(first) &&
		bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte("{"))
}

// Read reads the objects of a JSON or YAML file.
func Read(in io.Reader, name string) ([]Document, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, job.Errorf(job.CodeTooLarge, "use NDJSON, with one job on each line, which is streamed",
			"%s is larger than %d bytes", name, maxFile)
	}
	var docs []Document
	if text := bytes.TrimSpace(data); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		docs, err = jsonDocuments(data, name)
	} else {
		docs, err = yamlDocuments(data, name)
	}
	if err == nil && len(docs) == 0 {
		err = job.Errorf(job.CodeMalformed, "docs/jobs.md describes the job file", "%s is empty", name)
	}
	return docs, err
}

func jsonDocuments(data []byte, name string) ([]Document, error) {
	var docs []Document
	dec := json.NewDecoder(bytes.NewReader(data))
	line, counted := 1, 0 // up to where
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			at := dec.InputOffset()
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				at = syntax.Offset
			}
			line := 1 + bytes.Count(data[:min(int(at), len(data))], []byte("\n"))
			return nil, fmt.Errorf("%s:%d: %w", name, line,
				job.Errorf(job.CodeMalformed, "", "this is not JSON: %v", err))
		}
		begin := int(dec.InputOffset()) - len(raw)
		line += bytes.Count(data[counted:begin], []byte("\n"))
		counted = begin
		var list []json.RawMessage
		if raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
			for _, one := range list {
				docs = append(docs, Document{File: name, Line: line, JSON: one})
			}
			continue
		}
		docs = append(docs, Document{File: name, Line: line, JSON: raw})
	}
}

func yamlDocuments(data []byte, name string) ([]Document, error) {
	bad := func(err error) error {
		var e *job.Error
		if errors.As(err, &e) {
			return err
		}
		// The library's message has position and source over several lines.
		return fmt.Errorf("%s: %w", name,
			job.Errorf(job.CodeMalformed, "docs/jobs.md describes the job file", "this is not YAML: %s",
				strings.TrimSpace(yaml.FormatError(err, false, true))))
	}
	file, err := parse(data, name)
	if err != nil {
		return nil, bad(err)
	}
	var docs []Document
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if _, empty := d.Body.(*ast.CommentGroupNode); empty {
			continue
		}
		var v any
		d.Body = exactly(d.Body)
		if err := yaml.NodeToValue(d.Body, &v); err != nil {
			return nil, bad(err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, bad(err)
		}
		line := 0
		if t := d.Body.GetToken(); t != nil {
			line = t.Position.Line
		}
		docs = append(docs, Document{File: name, node: d.Body, Line: line, JSON: raw})
	}
	return docs, nil
}

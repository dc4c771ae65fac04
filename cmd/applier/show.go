package applier

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// sayDone says in a line what was done with a document, or would be.
func (r *run) sayDone(d *document, res client.ApplyResult) {
	title := d.title()
	if res.JobID != nil {
		title = output.NameAndID(title, *res.JobID)
	}
	done := res.Status
	if r.dryRun {
		done = map[string]string{"created": "would create", "changed": "would change"}[res.Status]
	}
	if res.Status == "created" {
		next := ""
		if res.NextRunAt != 0 {
			next = ", next run " + r.p.When(res.NextRunAt)
		}
		r.p.Printf("%s %s%s\n", done, title, next)
		return
	}
	var fields []string
	for _, c := range res.Changes {
		text := c.Field
		if !c.Large {
			text += " " + short(c.Before) + " -> " + short(c.After)
		}
		fields = append(fields, text)
	}
	r.p.Printf("%s %s: %s\n", done, d.title(), strings.Join(fields, ", "))
}

// short is a value in a few characters: a text in single quotes, anything else as JSON.
func short(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(none)"
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return "'" + output.Short(text, 60) + "'"
	}
	return output.Short(string(raw), 60)
}

// showDiff shows a document field by field, as a unified diff.
func (r *run) showDiff(d *document, res client.ApplyResult) error {
	title := d.title()
	if res.JobID != nil {
		title = output.NameAndID(title, *res.JobID)
	}
	if res.Status == "created" {
		r.p.Printf("--- (none)\n+++ %s, %s\n", title, d.where())
		text, err := jobfile.ToYAML(d.JSON)
		if err != nil {
			return err
		}
		r.plus(lines(text))
		return r.p.Err
	}
	r.p.Printf("--- %s\n+++ %s, %s\n", title, title, d.where())
	for _, c := range res.Changes {
		if c.Large {
			r.p.Printf("%s\n", r.p.Paint(terminal.Yellow, "! "+c.Field+" differs, and is too large to show"))
			continue
		}
		before, err := fieldLines(c.Field, c.Before)
		if err != nil {
			return err
		}
		after, err := fieldLines(c.Field, c.After)
		if err != nil {
			return err
		}
		r.unified(before, after)
	}
	return r.p.Err
}

func (r *run) showDeleted(j job.Job) {
	r.p.Printf("--- %s\n+++ (none), pruned\n", output.NameAndID(j.Name, j.ID))
	r.p.Printf("%s\n", r.p.Paint(terminal.Red, "-name: "+j.Name))
}

func (r *run) plus(some []string) {
	for _, l := range some {
		r.p.Printf("%s\n", r.p.Paint(terminal.Green, "+"+l))
	}
}

func lines(text []byte) []string { return strings.Split(strings.TrimRight(string(text), "\n"), "\n") }

// fieldLines is a field as a job file has it; nothing if it is not there.
func fieldLines(field string, raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	name, err := json.Marshal(field)
	if err != nil {
		return nil, err
	}
	text, err := jobfile.ToYAML(slices.Concat([]byte("{"), name, []byte(":"), raw, []byte("}")))
	if err != nil {
		return nil, err
	}
	return lines(text), nil
}

// maxTable bounds what a comparison line by line costs; beyond it all lines are shown as gone and new.
const maxTable = 1 << 20

// unified prints lines before and after: common ones as they are, those that went with -, those that came with +.
func (r *run) unified(before, after []string) {
	n, m := len(before), len(after)
	if n*m > maxTable {
		n, m = 0, 0
	}
	// common[i][j] is how many lines the rests from i and j on have in common.
	common := make([][]int, n+1)
	for i := range common {
		common[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); before[i] == after[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < n && j < m {
		switch {
		case before[i] == after[j]:
			r.p.Printf(" %s\n", before[i])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			r.p.Printf("%s\n", r.p.Paint(terminal.Red, "-"+before[i]))
			i++
		default:
			r.plus(after[j : j+1])
			j++
		}
	}
	for _, l := range before[i:] {
		r.p.Printf("%s\n", r.p.Paint(terminal.Red, "-"+l))
	}
	r.plus(after[j:])
}

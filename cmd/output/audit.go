package output

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Audit writes records of the audit.
func (p *Printer) Audit(page wire.AuditPage) {
	if len(page.Records) == 0 {
		p.Printf("no records\n")
		p.More(page.NextCursor)
		return
	}
	var t Table
	const less = Detail // without room, who it was matters more than from where, and a name more than an id
	t.Row("NO", "TIME", "WHO", less+"FROM", "ACTION", "NAMESPACE", "OBJECT", "OUTCOME")
	for _, r := range page.Records {
		t.Row(strconv.FormatUint(r.Seq, 10), p.WhenCell(r.At), Dash(cmp.Or(r.Name, r.Token)),
			less+Dash(r.Address), r.Action, Dash(r.Namespace), Dash(auditObject(r)), auditOutcome(r))
	}
	p.Table(t)
	p.More(page.NextCursor)
}

// auditObject is what was changed, as people know it.
func auditObject(r wire.AuditRecord) string {
	if r.Object == "" || r.ID == "" {
		return cmp.Or(r.Object, r.ID)
	}
	return r.Object + Detail + " (" + r.ID + ")"
}

func auditOutcome(r wire.AuditRecord) string {
	var counts []string
	for _, n := range []struct {
		n    int
		what string
	}{{r.Done, "done"}, {r.Unchanged, "unchanged"}, {r.Refused, "refused"}} {
		if n.n > 0 {
			counts = append(counts, strconv.Itoa(n.n)+" "+n.what)
		}
	}
	if len(counts) == 0 {
		return r.Outcome
	}
	return r.Outcome + ": " + strings.Join(counts, ", ")
}

package output

import (
	"fmt"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// Troubles are what is wrong, a line each: what, since when, and what to do.
func (p *Printer) Troubles(s wire.Status) {
	for _, t := range s.Troubles {
		if t.Code == wire.TroubleRestored && s.Hold != nil {
			continue // it has a line of its own
		}
		since := ""
		if t.Since != 0 && s.Now > t.Since {
			since = ", since " + Relative(t.Since.Time().Sub(s.Now.Time()))
		}
		p.Printf("%s %s%s: %s\n", p.Paint(terminal.Red, "!"), t.Text, since, Dash(t.Remedy))
	}
}

// DiskSpace is a line about the room on the node's disk. What a low one means depends on who leads.
func (p *Printer) DiskSpace(s wire.Status) string {
	d := s.Disk
	if d == nil {
		return ""
	}
	text := fmt.Sprintf("%s free of %s", job.Bytes(d.Free), job.Bytes(d.Total))
	switch {
	case !d.Low:
		return text
	case s.State == "leader":
		text += fmt.Sprintf("; below %s it creates no jobs while it leads", job.Bytes(d.Limit))
	default:
		text += fmt.Sprintf("; it should have %s. Jobs are created through the leader", job.Bytes(d.Limit))
	}
	return p.Paint(terminal.Red, "ALMOST FULL: ") + text
}

// Members are who is a member, how far behind each is and what is wrong with it. What only the leader knows is missing
// without one.
func (p *Printer) Members(s wire.Status) Table {
	var t Table
	t.Row("MEMBER", "ADDRESS", "ROLE", "LAG", "SKEW", "HEARD", "DISK", "")
	for _, m := range s.Members {
		lag, skew, heard, disk, problem := "-", "-", "-", "-", m.Problem
		if m.Lag != nil {
			lag = strconv.FormatUint(*m.Lag, 10)
		}
		if m.SkewMS != nil {
			skew = fmt.Sprintf("%dms", *m.SkewMS)
		}
		if m.LastHeard != 0 && s.Now != 0 {
			heard = Relative(min(0, m.LastHeard.Time().Sub(s.Now.Time())))
		}
		if m.Disk != nil {
			if disk = job.Bytes(m.Disk.Free).String() + " free"; m.Disk.Low {
				disk = p.Paint(terminal.Red, disk)
			}
		}
		t.Row(m.ID, m.Address, Role(m), lag, skew, heard, disk, p.Paint(terminal.Red, problem))
	}
	return t
}

// Role is what a member is to its cluster.
func Role(m wire.Member) string {
	switch {
	case m.Leader:
		return "leader"
	case m.Leaving:
		return "leaving"
	case m.Standby:
		return "standby"
	}
	return m.Suffrage
}

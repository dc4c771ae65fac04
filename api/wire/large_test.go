package wire

import (
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What busy workers say is far from what is refused for its number of values, even with the shortest ids there are.
func TestLargeMessagesOfWorkersPass(t *testing.T) {
	var h job.Heartbeat
	var r job.Report
	var a job.ReportReply
	var p job.PollReply
	for i := range 20_000 {
		run := job.RunKey{Job: 1, At: 1, Origin: 1}
		h.Held = append(h.Held, job.Held{Run: run, Fence: uint64(i)})
		r.Results = append(r.Results, job.Result{Run: run, Fence: uint64(i), Outcome: job.OutcomeSucceeded})
		a.Acks = append(a.Acks, job.Ack{Fence: uint64(i)})
		p.Cancel = append(p.Cancel, uint64(i))
		p.Assignments = append(p.Assignments, job.Assignment{Run: run, Type: job.TypeHTTP, Payload: []byte("{}")})
	}
	for _, m := range []any{&h, &r, &a, &p, &job.Register{Held: h.Held}} {
		packed, err := MarshalMsgpack(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := UnmarshalMsgpack(packed, m); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := job.CheckSize(text, m); err != nil {
			t.Errorf("%T in JSON: %v", m, err)
		}
	}
}

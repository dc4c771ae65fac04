package wire

import (
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What busy workers say is far from what is refused for its number of values, even with the shortest ids there are.
func TestLargeMessagesOfWorkersPass(t *testing.T) {
	var h job.Heartbeat
	var beaten job.HeartbeatReply
	var r job.Report
	var a job.ReportReply
	var p job.PollReply
	for i := range uint64(job.MaxItems) {
		ref := job.Ref{Fence: 1<<16 + i}
		h.Runs = append(h.Runs, ref)
		beaten.Runs = append(beaten.Runs, job.Answer{Ref: ref, Status: job.StatusOK})
		r.Results = append(r.Results, job.Result{Ref: ref, Outcome: job.OutcomeReturned})
		a.Results = append(a.Results, job.Answer{Ref: ref, Status: job.StatusOK})
		p.Stop, p.Watch = append(p.Stop, job.Stop{Ref: ref, Why: job.StopCanceled}), append(p.Watch, ref)
		p.Runs = append(p.Runs, job.Assignment{Run: job.RunKey{Job: 1, At: 1, Origin: 1}, Type: job.TypeHTTP, Payload: []byte("{}")})
	}
	for _, m := range []any{&h, &beaten, &r, &a, &p} {
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

package fsm

import (
	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/job"
	msg "github.com/carillon-scheduler/carillon/job/pack"
)

// encodeStored is what requests keeps of an outcome. That of a create, which is most of them, is written without reflection, byte by
// byte as the library would.
func encodeStored(fingerprint uint64, o *Outcome) ([]byte, error) {
	if o.Run == (job.RunKey{}) && o.Fence == 0 && o.Attempt == 0 && o.Key == "" && o.Count == 0 && len(o.Times)+len(o.Skipped) == 0 && o.Text == "" {
		return appendStored(make([]byte, 0, 64), fingerprint, o), nil
	}
	var data []byte
	err := codec.NewEncoderBytes(&data, handle).Encode(&storedOutcome{fingerprint, *o})
	return data, err
}

func appendStored(b []byte, fingerprint uint64, o *Outcome) []byte {
	b = msg.Map(b, 2)
	b = msg.Uint(msg.Str(b, "f"), fingerprint)
	b = msg.Map(msg.Str(b, "o"), 1+given(o.Job != 0, o.Version != 0))
	b = msg.Uint(msg.Str(b, "c"), uint64(o.Code))
	if o.Job != 0 {
		b = msg.Uint(msg.Str(b, "j"), uint64(o.Job))
	}
	if o.Version != 0 {
		b = msg.Uint(msg.Str(b, "v"), o.Version)
	}
	return b
}

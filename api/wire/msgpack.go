package wire

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/internal/expand"
	"github.com/carillon-scheduler/carillon/job"
)

// The media types of the worker protocol. Msgpack has the names of JSON for all fields; in it times are milliseconds
// since 1970, durations nanoseconds, job ids and origins their numbers and payloads binary, where JSON has strings.
const (
	MediaJSON    = "application/json"
	MediaMsgpack = "application/msgpack"
)

// LeaderHeader is the header in which a node that does not lead names the one that does, as host:port.
const LeaderHeader = "Carillon-Leader"

// The headers between nodes. They count only together with ForwardedHeader, and where connections are authenticated
// only on that of a node.
const (
	ForwardedHeader = "Carillon-Forwarded"      // the node that a request comes from; it is never forwarded again
	KeyHeader       = "Carillon-Request-Key"    // the identity of a change, stamped by the node that received it
	RepeatHeader    = "Carillon-Request-Repeat" // it was sent before, with an unknown outcome
	LocalHeader     = "Carillon-Local-Admin"    // it came in by that node's admin socket
	AddressHeader   = "Carillon-Client-Address" // where that node had it from, without a port
)

// NodeHeaders are those.
var NodeHeaders = []string{ForwardedHeader, KeyHeader, RepeatHeader, LocalHeader, AddressHeader}

// handle reads json tags only: RunKey has short names for the replicated log, and those are none of a worker's
// business. Fields that it does not know are passed over.
var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.TypeInfos = codec.NewTypeInfos([]string{"json"})
	return h
}()

// MarshalMsgpack encodes a message of the worker protocol.
func MarshalMsgpack(v any) ([]byte, error) {
	if b, ok := packMessage(v); ok {
		return b, nil
	}
	var b []byte
	err := codec.NewEncoderBytes(&b, handle).Encode(v)
	return b, err
}

// UnmarshalMsgpack reads what MarshalMsgpack wrote, and nothing after it. The result shares no memory with data. A
// message whose values would take too much memory is refused before it is decoded.
func UnmarshalMsgpack(data []byte, v any) error {
	if unpackMessage(data, v) {
		return nil
	}
	if _, ok := v.(*job.PollReply); ok { // the library does not know what an assignment looks like
		return errors.New("this is not an answer to a poll")
	}
	if err := expand.Msgpack(data, v); err != nil {
		return job.TooManyValues(err, "")
	}
	dec := codec.NewDecoderBytes(data, handle)
	if err := dec.Decode(v); err != nil {
		return err
	}
	if n := dec.NumBytesRead(); n != len(data) {
		return fmt.Errorf("%d bytes follow the message", len(data)-n)
	}
	return nil
}

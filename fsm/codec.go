package fsm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// commandVersion is the version byte that this binary writes. Versions of a type are decoded for as long as logs may hold them.
const commandVersion = 1

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.Canonical = true
	return h
}()

var commandTypes = map[Type]func() any{
	TypeCreate: func() any { return new(Create) }, TypeUpdate: func() any { return new(Update) },
	TypeDelete: func() any { return new(Delete) }, TypePause: func() any { return new(Pause) },
	TypeResume: func() any { return new(Resume) }, TypeTrigger: func() any { return new(Trigger) },
	TypeBackfill: func() any { return new(Backfill) }, TypeClaim: func() any { return new(Claim) },
	TypeComplete: func() any { return new(Complete) }, TypeExpire: func() any { return new(Expire) },
	TypeAdvance: func() any { return new(Advance) }, TypeCancel: func() any { return new(Cancel) },
	TypeRedrive: func() any { return new(Redrive) }, TypePurge: func() any { return new(Purge) },
	TypeTrim: func() any { return new(Trim) }, TypeStamp: func() any { return new(Stamp) },
	TypeCalendar: func() any { return new(Calendar) }, TypeQuarantine: func() any { return new(Quarantine) },
	TypeClockReset: func() any { return new(ClockReset) }, TypeCleanup: func() any { return new(Cleanup) },
	TypeInit: func() any { return new(Init) }, TypePutNode: func() any { return new(PutNode) },
	TypeRemoveNode: func() any { return new(RemoveNode) }, TypeSetLevel: func() any { return new(SetLevel) },
	TypePutQueue: func() any { return new(PutQueue) }, TypeDeleteQueue: func() any { return new(DeleteQueue) },
	TypeRelease: func() any { return new(Release) }, TypeLose: func() any { return new(Lose) },
	TypeClaimNotices: func() any { return new(ClaimNotices) }, TypeSettleNotices: func() any { return new(SettleNotices) },
	TypeAdmit: func() any { return new(Admit) },
}

func typeOf(cmd any) (Type, bool) {
	switch cmd.(type) {
	case *Create:
		return TypeCreate, true
	case *Update:
		return TypeUpdate, true
	case *Delete:
		return TypeDelete, true
	case *Pause:
		return TypePause, true
	case *Resume:
		return TypeResume, true
	case *Trigger:
		return TypeTrigger, true
	case *Backfill:
		return TypeBackfill, true
	case *Claim:
		return TypeClaim, true
	case *Complete:
		return TypeComplete, true
	case *Expire:
		return TypeExpire, true
	case *Advance:
		return TypeAdvance, true
	case *Admit:
		return TypeAdmit, true
	case *Cancel:
		return TypeCancel, true
	case *Redrive:
		return TypeRedrive, true
	case *Purge:
		return TypePurge, true
	case *Trim:
		return TypeTrim, true
	case *Stamp:
		return TypeStamp, true
	case *Calendar:
		return TypeCalendar, true
	case *Quarantine:
		return TypeQuarantine, true
	case *ClockReset:
		return TypeClockReset, true
	case *Cleanup:
		return TypeCleanup, true
	case *Init:
		return TypeInit, true
	case *PutNode:
		return TypePutNode, true
	case *RemoveNode:
		return TypeRemoveNode, true
	case *SetLevel:
		return TypeSetLevel, true
	case *PutQueue:
		return TypePutQueue, true
	case *DeleteQueue:
		return TypeDeleteQueue, true
	case *Release:
		return TypeRelease, true
	case *Lose:
		return TypeLose, true
	case *ClaimNotices:
		return TypeClaimNotices, true
	case *SettleNotices:
		return TypeSettleNotices, true
	}
	return 0, false
}

// ErrTooLarge means that an entry may not be proposed; split it.
var ErrTooLarge = errors.New("fsm: the command is larger than a log entry may be")

// Encode makes a log entry of a command (a pointer to one of the structs above).
func Encode(cmd any) ([]byte, error) {
	data, err := encode(cmd)
	if err == nil && len(data) > MaxEntry {
		return nil, ErrTooLarge
	}
	return data, err
}

func encode(cmd any) ([]byte, error) {
	t, ok := typeOf(cmd)
	if !ok {
		return nil, fmt.Errorf("fsm: %T is not a command", cmd)
	}
	if c, ok := cmd.(*Create); ok {
		return appendCreate([]byte{byte(t), commandVersion}, c), nil
	}
	var buf bytes.Buffer
	buf.WriteByte(byte(t))
	buf.WriteByte(commandVersion)
	if err := codec.NewEncoder(&buf, handle).Encode(cmd); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// UnknownCommandError stops a node: an entry that it cannot read was written by a newer binary.
type UnknownCommandError struct{ Type, Version uint8 }

func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("fsm: unknown command %d version %d in the log: it was written by a newer carillon; start this node with that binary", e.Type, e.Version)
}

// Decode reads a log entry.
func Decode(data []byte) (any, error) {
	if len(data) < 2 {
		return nil, errors.New("fsm: a command has at least two bytes")
	}
	mk, ok := commandTypes[Type(data[0])]
	if !ok || data[1] != commandVersion {
		return nil, &UnknownCommandError{data[0], data[1]}
	}
	if Type(data[0]) == TypeCreate {
		if c, ok := readCreate(data[2:]); ok {
			return c, nil
		}
	}
	cmd := mk()
	dec := codec.NewDecoderBytes(data[2:], handle)
	if err := dec.Decode(cmd); err != nil {
		return nil, fmt.Errorf("fsm: command %d: %w", data[0], err)
	}
	if n := dec.NumBytesRead(); n != len(data)-2 {
		return nil, fmt.Errorf("fsm: command %d: %d bytes follow it", data[0], len(data)-2-n)
	}
	if c, ok := cmd.(interface{ columns() error }); ok {
		if err := c.columns(); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}

package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ID is a job's number. Numbers are dense, grow within a group and are never reused. The top bits carry the group
// (GroupBits) and, after a restore, the epoch, so that a restored cluster never issues a number twice.
type ID uint64

const (
	// GroupBits is how many of an ID's top bits name the Raft group the job lives in.
	GroupBits = 8
	// EpochBits follow the group bits; a restore raises the epoch.
	EpochBits = 12
	// GroupShift and EpochShift are where they begin. Fences have the epoch in the same place, and no group.
	GroupShift = 64 - GroupBits
	EpochShift = GroupShift - EpochBits
	// idPrefix begins every job id as shown; names may not begin with it, so that a reference is never ambiguous.
	idPrefix  = "j_"
	runPrefix = "r_"
)

// Group is the Raft group that owns the job.
func (id ID) Group() uint8 { return uint8(id >> GroupShift) }

// String is the id as people and programs see it.
func (id ID) String() string { return idPrefix + strconv.FormatUint(uint64(id), 32) }

// MarshalText makes an ID a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	if err == nil {
		*id = v
	}
	return err
}

// ParseID reads an id as shown by String.
func ParseID(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, idPrefix)
	if !ok {
		return 0, fmt.Errorf("a job id begins with %q", idPrefix)
	}
	n, err := strconv.ParseUint(rest, 32, 64)
	if err != nil || rest[0] == '0' || strings.ContainsFunc(rest, isCapital) { // one id has one spelling
		return 0, fmt.Errorf("%q is not a job id", s)
	}
	return ID(n), nil
}

func isCapital(r rune) bool { return r >= 'A' && r <= 'Z' }

// Origin says why a run exists.
type Origin uint8

// The origins. Numbers are part of the stored format and are never reused.
const (
	OriginSchedule Origin = 1
	OriginManual   Origin = 2
	OriginBackfill Origin = 3
)

var originNames = map[Origin]string{OriginSchedule: "schedule", OriginManual: "manual", OriginBackfill: "backfill"}

func (o Origin) String() string {
	if n, ok := originNames[o]; ok {
		return n
	}
	return "origin(" + strconv.Itoa(int(o)) + ")"
}

// MarshalText makes an Origin a string in JSON.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (o *Origin) UnmarshalText(b []byte) error {
	for k, n := range originNames {
		if n == string(b) {
			*o = k
			return nil
		}
	}
	return fmt.Errorf("unknown origin %q", b)
}

// RunKey is the identity of a run: it stays the same over all its attempts.
type RunKey struct {
	Job    ID     `json:"job_id" codec:"j"`
	At     int64  `json:"scheduled_at_ms" codec:"a"` // milliseconds since 1970
	Origin Origin `json:"origin" codec:"o"`
}

// String is the run id as people and programs see it: r_<job>.<scheduled ms>.<origin letter>.
func (k RunKey) String() string {
	return runPrefix + strconv.FormatUint(uint64(k.Job), 32) + "." + strconv.FormatInt(k.At, 32) + "." +
		k.Origin.String()[:1]
}

var errRunID = errors.New(`a run id looks like "r_1a.1jq2k3m4.s"`)

// ParseRunKey reads a run id as shown by RunKey.String.
func ParseRunKey(s string) (RunKey, error) {
	rest, ok := strings.CutPrefix(s, runPrefix)
	if !ok {
		return RunKey{}, errRunID
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return RunKey{}, errRunID
	}
	id, err := ParseID(idPrefix + parts[0])
	if err != nil {
		return RunKey{}, errRunID
	}
	at, err := strconv.ParseInt(parts[1], 32, 64)
	if err != nil {
		return RunKey{}, errRunID
	}
	for o, n := range originNames {
		if n[:1] == parts[2] {
			k := RunKey{Job: id, At: at, Origin: o}
			if k.String() != s {
				return RunKey{}, errRunID
			}
			return k, nil
		}
	}
	return RunKey{}, errRunID
}

package job

import (
	"errors"
	"strconv"
	"strings"
)

// ClaimRef names a claim among all groups: fences order the claims of one group, and two groups may have the same. To
// clients it is an opaque string, which also spares those that read JSON numbers as floats from losing digits.
type ClaimRef struct {
	Run   RunKey
	Group uint32
	Fence uint64
}

const claimPrefix = "c_"

// String is the claim as clients see it: c_<run id without its prefix>.<group>.<fence>.
func (c ClaimRef) String() string {
	return claimPrefix + strings.TrimPrefix(c.Run.String(), runPrefix) + "." +
		strconv.FormatUint(uint64(c.Group), 32) + "." + strconv.FormatUint(c.Fence, 32)
}

var errClaimRef = errors.New("it is not a claim that a poll was answered with")

// ParseClaimRef reads what ClaimRef.String wrote.
func ParseClaimRef(s string) (ClaimRef, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 5 || !strings.HasPrefix(s, claimPrefix) {
		return ClaimRef{}, errClaimRef
	}
	run, err := ParseRunKey(runPrefix + strings.TrimPrefix(strings.Join(parts[:3], "."), claimPrefix))
	if err != nil {
		return ClaimRef{}, errClaimRef
	}
	group, err := strconv.ParseUint(parts[3], 32, 32)
	if err != nil {
		return ClaimRef{}, errClaimRef
	}
	fence, err := strconv.ParseUint(parts[4], 32, 64)
	c := ClaimRef{Run: run, Group: uint32(group), Fence: fence}
	if err != nil || c.String() != s {
		return ClaimRef{}, errClaimRef
	}
	return c, nil
}

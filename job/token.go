package job

import (
	"maps"
	"slices"
)

// TokenRole is what an API token lets its holder do.
type TokenRole string

// The roles of tokens.
const (
	RoleViewer   TokenRole = "viewer"
	RoleOperator TokenRole = "operator"
	RoleAdmin    TokenRole = "admin"
	RoleWorker   TokenRole = "worker"
)

// TokenRoles are all of them.
var TokenRoles = []TokenRole{RoleViewer, RoleOperator, RoleAdmin, RoleWorker}

// Known says whether there is such a role.
func (r TokenRole) Known() bool {
	for _, k := range TokenRoles {
		if r == k {
			return true
		}
	}
	return false
}

// CheckWorkerTags bounds what a worker that has a token says of itself. The tag queue is a list of queues.
func CheckWorkerTags(tags map[string]string) error {
	if len(tags) > MaxTags {
		return Invalid("tags", "leave out tags that no job selects by", "%d tags are more than %d", len(tags), MaxTags)
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		limit := 2 * MaxTagBytes
		if k == "queue" {
			limit = MaxTags * MaxTagBytes
		}
		if n := len(k) + len(tags[k]); k == "" || n > limit {
			return Invalid("tags", "use short keys and values", "the tag %.50q is empty or has more than %d bytes", k,
				limit)
		}
	}
	return nil
}

// MaxWorkerSlots is how many runs a worker may work on at once.
const MaxWorkerSlots = 65536

package job

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

// MaxWorkerSlots is how many runs a worker may work on at once.
const MaxWorkerSlots = 65536

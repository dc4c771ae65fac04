package enroll

// ToReplace says what else is to be replaced when the keys of a cluster may be known to others.
const ToReplace = `
The old CA is not trusted any more, and join tokens are revoked. Replace what else may be known:
  API tokens, all of them, those of workers too: on a node that stays, by its admin socket
      carillon --addr unix:DATA_DIR/admin.sock token create NAME --role ROLE
      carillon --addr unix:DATA_DIR/admin.sock token revoke OLD
      and carillon login with the new one: tokens of the old CA do not find the cluster
  ca.pem, wherever clients have a copy of it
  secrets, and passwords in the definitions of jobs: they were readable on every node
`

// StillHasKeys is about a node of a secure cluster that was removed in good order.
const StillHasKeys = `
Its data directory still holds what it had of the cluster: the state, and if it voted the keys of the cluster (keys/cluster.pem),
with which anybody can do everything. Delete the directory. If others may have it: carillon cluster remove %s --compromised
`

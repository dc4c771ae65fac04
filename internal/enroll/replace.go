package enroll

// ToReplace says what else is to be replaced when the keys of a cluster may be known to others.
const ToReplace = `
The old CA is no longer trusted, join tokens are revoked, and all API tokens are suspended, except the one that was
used for this command. Also replace what else others may know:
  all API tokens, including those of workers: on a node that stays, through its admin socket
      carillon --addr unix:DATA_DIR/admin.sock token create NAME --role ROLE
      carillon --addr unix:DATA_DIR/admin.sock token revoke OLD
      and carillon login with the new one: a token names the CA that it was made under, so that clients with an older
      one, also one that was resumed, trust no node any more unless they are given the new ca.pem (--ca-file)
  ca.pem, wherever clients have a copy
  secrets, and passwords in the definitions of jobs: they were readable on every node
`

// StillHasKeys is about a node of a secure cluster that was removed in good order.
const StillHasKeys = `
Its data directory still contains the state of the cluster and, if it voted, the cluster's keys (keys/cluster.pem), with which
anybody can do everything. Delete the directory. If others may have it: carillon cluster remove %s --compromised
`

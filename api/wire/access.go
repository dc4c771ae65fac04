package wire

import (
	"github.com/carillon-scheduler/carillon/job"
)

// TokenRequest is a token that is to be made.
type TokenRequest struct {
	Name      string        `json:"name"`
	Role      job.TokenRole `json:"role"`
	Namespace string        `json:"namespace,omitempty"` // empty: all
	Shell     bool          `json:"shell,omitempty"`     // it may create and edit shell jobs
	TTL       job.Duration  `json:"ttl,omitempty"`       // 0: it does not expire
	WorkerGrant
}

// WorkerGrant bounds the workers of a token with the role worker. What is empty is not bounded.
type WorkerGrant struct {
	Queues []string          `json:"queues,omitempty"`
	Types  []string          `json:"types,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`  // that its workers have, whatever they say
	Slots  int               `json:"slots,omitempty"` // of one worker
	// Secrets that runs may be handed to them with, "*" for all of the namespace. Without them they get no such run.
	Secrets []string `json:"secrets,omitempty"`
}

// Token is a token as it is listed. Its text is kept nowhere.
type Token struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Role      job.TokenRole `json:"role"`
	Namespace string        `json:"namespace,omitempty"`
	Shell     bool          `json:"shell,omitempty"`
	Status    string        `json:"status"` // active, expired, revoked or suspended
	// CA is what the CA is that its text names: current, former, leaving (the next rotation forgets it) or forgotten
	// (its holder does not find the cluster).
	CA        string      `json:"ca,omitempty"`
	CreatedAt job.Instant `json:"created_at"`
	CreatedBy string      `json:"created_by,omitempty"`
	ExpiresAt job.Instant `json:"expires_at,omitzero"`
	RevokedAt job.Instant `json:"revoked_at,omitzero"`
	RevokedBy string      `json:"revoked_by,omitempty"`
	WorkerGrant
}

// TokenCreated is a new token with its text, which is shown once.
type TokenCreated struct {
	Token
	Text string `json:"token,omitempty"`
}

// TokenList are all tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// JoinTokenRequest is a join token that is to be made.
type JoinTokenRequest struct {
	TTL  job.Duration `json:"ttl,omitempty"`  // default 1h
	Uses int          `json:"uses,omitempty"` // how many nodes may join with it; default 1
	// Voter lets them vote as soon as they have caught up. Without it they stay on standby until they are promoted.
	Voter bool `json:"voter,omitempty"`
}

// JoinToken is a join token as it is listed.
type JoinToken struct {
	ID        string      `json:"id"`
	Status    string      `json:"status"` // active, expired, used up or revoked
	Uses      int         `json:"uses"`
	Used      int         `json:"used"`
	Voter     bool        `json:"voter,omitempty"` // nodes that join with it get a vote
	CreatedAt job.Instant `json:"created_at"`
	CreatedBy string      `json:"created_by,omitempty"`
	ExpiresAt job.Instant `json:"expires_at"`
	RevokedAt job.Instant `json:"revoked_at,omitzero"`
}

// JoinTokenCreated is a new join token with its text.
type JoinTokenCreated struct {
	JoinToken
	Text string `json:"token"`
}

// JoinTokenList are all join tokens.
type JoinTokenList struct {
	Tokens []JoinToken `json:"tokens"`
}

// AuditQuery selects audit records. What is empty selects nothing.
type AuditQuery struct {
	Action string // such as job.create, or the kind of the object alone: job
	Object string // its id or name
	Token  string // the caller's: its id or name
	Since  job.Instant
	Until  job.Instant
	After  Seqs // those with a higher number
	Limit  int
	Cursor string
}

// AuditRecord says who changed what.
type AuditRecord struct {
	Seq       uint64      `json:"seq"` // without gaps
	At        job.Instant `json:"at"`
	Token     string      `json:"token,omitempty"`   // the id of the caller's token
	Name      string      `json:"name,omitempty"`    // of the token, or the admin socket of a node
	Address   string      `json:"address,omitempty"` // where the request came from
	Action    string      `json:"action"`
	Kind      string      `json:"kind"`
	ID        string      `json:"id,omitempty"`
	Object    string      `json:"object,omitempty"` // its name
	Namespace string      `json:"namespace,omitempty"`
	Outcome   string      `json:"outcome"` // ok, or why not
	Request   string      `json:"request,omitempty"`
	// Of what is about many things: how many were changed, were so already, were refused.
	Done      int `json:"done,omitempty"`
	Unchanged int `json:"unchanged,omitempty"`
	Refused   int `json:"refused,omitempty"`
}

// AuditPage is a part of the records, newest first.
type AuditPage struct {
	Records    []AuditRecord `json:"records"`
	NextCursor string        `json:"next_cursor,omitempty"`
}

// Whoami is who a caller is to a node.
type Whoami struct {
	Secure    bool          `json:"secure"` // the cluster asks for tokens
	Token     string        `json:"token,omitempty"`
	Name      string        `json:"name"`
	Role      job.TokenRole `json:"role"`
	Namespace string        `json:"namespace,omitempty"`
	Shell     bool          `json:"shell,omitempty"`
	ExpiresAt job.Instant   `json:"expires_at,omitzero"`
	// Groups are the Raft groups whose leaders have work for workers. None: the cluster has one group.
	Groups []uint32 `json:"groups,omitempty"`
	WorkerGrant
}

// SecretRequest is a secret's new value. It goes in, and never comes out again.
type SecretRequest struct {
	Value string `json:"value"`
	// Hosts are where it may be sent to, HOST or HOST:PORT; an empty list: anywhere. Without one a secret that there is
	// keeps its hosts: a new value must not widen where it goes.
	Hosts []string `json:"hosts,omitzero"`
}

// Secret is a secret as it is listed, without its value.
type Secret struct {
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Version   uint64      `json:"version"` // of the value
	Status    string      `json:"status"`  // set; missing: its value is sealed with a key that the cluster has not
	Hosts     []string    `json:"hosts,omitempty"`
	SetAt     job.Instant `json:"set_at"`
	SetBy     string      `json:"set_by,omitempty"`
	Jobs      []string    `json:"jobs,omitempty"`      // the first that refer to it
	JobCount  int         `json:"job_count,omitempty"` // how many do
}

// SecretList are the secrets of a namespace, or of all.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
}

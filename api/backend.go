package api

// Request identifies a mutating request, so that a repeat is answered with the first outcome.
type Request struct {
	Key         string // the client's Idempotency-Key, or one that the receiving node stamped; never empty
	Owner       string // the id of the token whose key it is; empty where no token is asked for
	Client      bool   // the key is the client's: keep its outcome for 24 hours
	Fingerprint uint64 // of method, path and body: the same key with another request is refused
	// Repeat says that a node sent this before and does not know how that ended: what is stored about it comes first.
	Repeat bool
	Space  Space
}

// Read says how fresh a read must be.
type Read struct {
	Stale bool // answer from this node's own state, leader or not
	Space Space
}

// Backend is what the routes stand on; each part is declared beside its routes. Package node/service implements it.
// Every error it returns is a *job.Error or is treated as internal. A job reference is an id (j_…) or a name.
type Backend interface {
	JobBackend
	InsightBackend
	UpcomingBackend
	RunBackend
	DeadBackend
	ScheduleBackend
	QueueBackend
	BackupBackend
	TokenBackend
	SecretBackend
	JoinTokenBackend
	AuditBackend
	RotationBackend
	SystemBackend
	DevBackend
}

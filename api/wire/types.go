package wire

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// JobQuery filters and pages the list of jobs. Cursor is the next_cursor of the page before.
type JobQuery struct {
	Status job.Status
	Type   job.Type
	Prefix string            // of the name
	Tags   map[string]string // all of them
	Text   string            // somewhere in the name, whatever the case of its letters
	// Failing asks for jobs whose last run did not do what it was there for.
	Failing bool
	Limit   int
	Cursor  string
}

// Filters says that not every job is asked for.
func (q *JobQuery) Filters() bool {
	return q.Status != "" || q.Type != "" || q.Prefix != "" || len(q.Tags) > 0 || q.Text != "" || q.Failing
}

// JobPage is one page of jobs. One of a filter may be short, or empty, and have a next one all the same: it says how
// many jobs were looked at for it.
type JobPage struct {
	Jobs       []job.Job `json:"jobs"`
	Scanned    int       `json:"scanned,omitempty"`
	Total      uint64    `json:"total,omitempty"` // jobs that there are, for those who may see every namespace
	NextCursor string    `json:"next_cursor"`
}

// JobAction is what is to be done with every job that a filter matches.
type JobAction struct {
	Filter JobFilter     `json:"filter"`
	Action string        `json:"action"` // pause, resume, run, tag, untag, jitter or delete
	Args   JobActionArgs `json:"args,omitzero"`
	DryRun bool          `json:"dry_run,omitempty"` // only count
	// Expect is how many are expected to match; otherwise nothing is done. A delete needs it.
	Expect *int   `json:"expect,omitempty"`
	Cursor string `json:"cursor,omitempty"` // of the last line of an answer that broke off
}

// JobActionArgs are what actions need.
type JobActionArgs struct {
	// Tags are set by tag. Untag removes them; one with a value only where it has that.
	Tags     map[string]string `json:"tags,omitempty"`
	JitterMS *int64            `json:"jitter_ms,omitempty"`
}

// JobFilter selects jobs: by ids, all of them, or those that have everything else that it names.
type JobFilter struct {
	Text    string            `json:"q,omitempty"`
	Prefix  string            `json:"prefix,omitempty"`
	Status  job.Status        `json:"status,omitempty"`
	Type    job.Type          `json:"type,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Failing bool              `json:"failing,omitempty"`
	IDs     []job.ID          `json:"ids,omitempty"`
	All     bool              `json:"all,omitempty"`
}

// Query is the filter as lists have it; ids and all are not in it.
func (f *JobFilter) Query() JobQuery {
	return JobQuery{Status: f.Status, Type: f.Type, Prefix: f.Prefix, Tags: f.Tags, Text: f.Text, Failing: f.Failing}
}

// JobActionProgress is a line of the answer to a JobAction.
type JobActionProgress struct {
	DryRun  bool   `json:"dry_run,omitempty"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
	Failed  int    `json:"failed"`
	Scanned int    `json:"scanned"`
	Total   uint64 `json:"total,omitempty"` // jobs that there are, for those who may see every namespace
	Cursor  string `json:"cursor"`          // go on from here if no other line comes
	// Errors are some of those since the line before.
	Errors   []JobActionError `json:"errors"`
	Finished bool             `json:"finished,omitempty"`
	Error    *job.Error       `json:"error,omitempty"` // why it ended before its end
}

// JobActionError is why an action failed on one job.
type JobActionError struct {
	JobID job.ID     `json:"job_id"`
	Name  string     `json:"name,omitempty"`
	Error *job.Error `json:"error"`
}

// RunQuery filters and pages runs. Statuses empty means all.
type RunQuery struct {
	Statuses []job.RunStatus
	Job      string // reference; empty for all jobs
	// From and To bound when a run was recorded, and of an open one its scheduled time; 0: they do not.
	From, To job.Instant
	Worker   string // that had its last attempt
	Error    string // a text in its error, whatever the case of its letters
	Limit    int
	Cursor   string
}

// Searches says that runs are looked for, beyond what a list is ordered by.
func (q *RunQuery) Searches() bool {
	return q.From != 0 || q.To != 0 || q.Worker != "" || q.Error != ""
}

// RunPage is one page of runs, newest first.
type RunPage struct {
	Runs []job.Run `json:"runs"`
	// Scanned is about how many runs and records were looked at for a search, which may be many for a short page.
	Scanned    int    `json:"scanned,omitempty"`
	NextCursor string `json:"next_cursor"`
}

// RunDetail is one run: as it stands, and its attempts so far, newest first.
type RunDetail struct {
	job.Run
	Attempts []job.Run `json:"attempts"`
}

// DeadQuery selects dead letters: by job, by id, or all.
type DeadQuery struct {
	IDs []uint64 `json:"ids,omitempty"`
	Job string   `json:"job,omitempty"`
	All bool     `json:"all,omitempty"` // redrive and purge want to be told explicitly
	// Group is the key of a group of dead letters that have one cause.
	Group string `json:"group,omitempty"`
	// Max is how many are taken at most, newest first; 0: all of them.
	Max    int    `json:"max,omitempty"`
	Limit  int    `json:"-"`
	Cursor string `json:"-"`
}

// DeadPage is one page of dead letters, newest first.
type DeadPage struct {
	Dead       []job.DeadLetter `json:"dead"`
	NextCursor string           `json:"next_cursor"`
}

// DeadResult says how many dead letters a redrive or purge took.
type DeadResult struct {
	Count   int      `json:"count"`
	Unknown []uint64 `json:"unknown,omitempty"` // of the ids that were given: those that there is no dead letter of
}

// BulkLine is one line of a bulk create.
type BulkLine struct {
	Line int
	Spec job.Spec
	Err  *job.Error // the line could not be read; it is answered in its place
	Raw  []byte     // the line as it came: an unnamed job's identity for a rerun
}

// BulkResult answers one line: "created", "exists" (the same job is there already) or "error".
type BulkResult struct {
	Line   int        `json:"line"`
	Status string     `json:"status"`
	JobID  *job.ID    `json:"job_id,omitempty"`
	Name   string     `json:"name,omitempty"`
	Error  *job.Error `json:"error,omitempty"`
}

// BackfillRequest asks for runs of the occurrences in [From, To]. Force repeats those that ran already, with a new key.
type BackfillRequest struct {
	From   job.Instant `json:"from"`
	To     job.Instant `json:"to"`
	Max    int         `json:"max,omitempty"` // refused if it would be more; default 100, at most job.MaxBackfill
	DryRun bool        `json:"dry_run,omitempty"`
	Force  bool        `json:"force,omitempty"`
}

// BackfillResult says what a backfill did, or with dry_run would do.
type BackfillResult struct {
	DryRun  bool          `json:"dry_run"`
	Times   []job.Instant `json:"times"`   // the occurrences that (would) run
	Skipped []job.Instant `json:"skipped"` // ran already or are open
}

// PreviewRequest asks for fire times of an expression before a job is saved.
type PreviewRequest struct {
	Schedule   string       `json:"schedule"`
	Timezone   string       `json:"timezone,omitempty"`
	From       job.Instant  `json:"from,omitzero"`
	Count      int          `json:"count,omitempty"`
	DSTGap     string       `json:"dst_gap,omitempty"`
	DSTOverlap string       `json:"dst_overlap,omitempty"`
	StartAt    job.Instant  `json:"start_at,omitzero"`
	EndAt      job.Instant  `json:"end_at,omitzero"`
	Calendars  []string     `json:"calendars,omitempty"`
	JobID      *job.ID      `json:"job_id,omitempty"` // H, @every and jitter depend on it
	Jitter     job.Duration `json:"jitter,omitempty"`
	Until      job.Instant  `json:"until,omitzero"`    // no time after this
	Zones      []string     `json:"zones,omitempty"`   // in which the times are said as well
	Sharing    bool         `json:"sharing,omitempty"` // say what else there is in the minute of the first time
}

// PreviewTime is one fire time.
type PreviewTime struct {
	At    string      `json:"at"` // RFC 3339 with the zone's offset
	UTC   job.Instant `json:"utc"`
	Note  string      `json:"note,omitempty"` // what daylight saving or a calendar does to it
	Fires bool        `json:"fires"`          // false: a calendar forbids it
	// Zones is the same time in the zones that were asked for.
	Zones map[string]string `json:"zones,omitempty"`
}

// PreviewResult answers a PreviewRequest.
type PreviewResult struct {
	Schedule    string        `json:"schedule"`
	Timezone    string        `json:"timezone"`
	Description string        `json:"description"`
	Times       []PreviewTime `json:"times"`
	Sharing     *Sharing      `json:"sharing,omitempty"` // null: it was not asked for, or there is no next time
}

// Sharing is how many occurrences of jobs that there are may start in one minute, and what jitter would make of it.
type Sharing struct {
	Minute job.Instant  `json:"minute"`
	Jobs   int64        `json:"jobs"`
	Kind   string       `json:"kind"` // exact, or projected from some jobs
	Peaks  []JitterPeak `json:"peak_with_jitter"`
}

// JitterPeak is the most that any minute would have if what shares the first one were spread over a jitter.
type JitterPeak struct {
	JitterMS int64 `json:"jitter_ms"`
	Peak     int64 `json:"peak"`
}

// CalendarList is all blackout calendars.
type CalendarList struct {
	Calendars []schedule.Calendar `json:"calendars"`
}

// Status is what a node knows of itself and its cluster.
type Status struct {
	Node        string            `json:"node"`
	Version     string            `json:"version"`
	ClusterID   string            `json:"cluster_id"`
	Level       int               `json:"level"` // the committed feature level: what every member can do
	State       string            `json:"state"` // leader, follower, candidate
	Leader      string            `json:"leader"`
	Term        uint64            `json:"term"`
	Ready       bool              `json:"ready"`
	NotReady    string            `json:"not_ready,omitempty"` // why
	Insecure    bool              `json:"insecure,omitempty"`  // others reach it, and it asks none of them who they are
	Now         job.Instant       `json:"now"`
	StartedAt   job.Instant       `json:"started_at"`
	Members     []Member          `json:"members"`
	Workers     []WorkerStatus    `json:"workers"`
	Jobs        uint64            `json:"jobs"`
	OpenRuns    int               `json:"open_runs"`
	Backlog     int64             `json:"backlog"` // due and not claimed; counting stops at 10,000
	BacklogMore bool              `json:"backlog_more,omitempty"`
	DeadLetters uint64            `json:"dead_letters"`
	NextDueAt   job.Instant       `json:"next_due_at,omitzero"`
	History     HistoryStatus     `json:"history"`
	Hold        *HoldStatus       `json:"hold,omitempty"`     // restored from a backup and not yet released
	CA          string            `json:"ca,omitempty"`       // the hash of a secure cluster's CA, as tokens have it
	Rotation    *Rotation         `json:"rotation,omitempty"` // of the CA; there only while it is under way
	Raft        map[string]string `json:"raft"`
	Disk        *DiskSpace        `json:"disk,omitempty"`
	Skipped     []SkippedEntry    `json:"skipped_entries,omitempty"`
	Troubles    []Trouble         `json:"troubles,omitempty"` // what is wrong with the cluster or a node of it
	// Notifications is there only if some could not be sent so far.
	Notifications *NotificationStatus `json:"notifications,omitempty"`
}

// Trouble is one thing that is wrong, and what to do about it.
type Trouble struct {
	Code   string      `json:"code"`
	Node   string      `json:"node,omitempty"` // that it is about
	Since  job.Instant `json:"since,omitzero"` // by the clock of the node that answers
	Text   string      `json:"text"`
	Remedy string      `json:"remedy,omitempty"`
}

// The codes of troubles.
const (
	TroubleNoLeader    = "no_leader"
	TroubleHold        = "hold"        // the leader's clock: nothing is started or created
	TroubleRestored    = "restored"    // the cluster waits to be released
	TroubleUnreachable = "unreachable" // a member does not answer
	TroubleMember      = "member"      // a member is not as it should be
	TroubleClock       = "clock_skew"  // a member's clock
	TroubleDisk        = "disk_low"
	TroubleLag         = "lag"
	TroubleBacklog     = "no_worker" // work is due that no worker takes
	TroubleNotReady    = "not_ready"
	TroubleInsecure    = "insecure"  // no TLS and no tokens, on purpose
	TroubleRotation    = "rotation"  // of the CA waits for a member
	TroubleKeys        = "keys_lost" // no voter has the keys of the cluster
)

// NotificationStatus says that notifications could not be sent so far.
type NotificationStatus struct {
	Waiting int         `json:"waiting"` // all that wait to be sent
	Since   job.Instant `json:"since"`   // of the oldest that could not be sent
	Error   string      `json:"error"`   // why
}

// DiskSpace is how much room a node's data directory has.
type DiskSpace struct {
	Free  uint64 `json:"free_bytes"`
	Total uint64 `json:"total_bytes"` // 0: it is not known
	Limit uint64 `json:"limit_bytes"` // with less than this the leader creates no jobs
	Low   bool   `json:"low,omitempty"`
}

// SkippedEntry is an entry of the log that a node was told to pass over, because it cannot be applied.
type SkippedEntry struct {
	Index uint64      `json:"index"`
	Term  uint64      `json:"term"`
	At    job.Instant `json:"at"` // when it was told
}

// Member is one server of the cluster.
type Member struct {
	ID       string `json:"id"`
	Address  string `json:"address"`
	Suffrage string `json:"suffrage"`
	Leader   bool   `json:"leader"`

	Instance string            `json:"instance_id,omitempty"`
	Version  string            `json:"version,omitempty"`
	Level    int               `json:"level,omitempty"`
	Slots    int               `json:"slots,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Standby  bool              `json:"standby,omitempty"` // stays without a vote until it is promoted
	JoinedAt job.Instant       `json:"joined_at,omitzero"`

	// As the leader sees it; empty elsewhere.
	Applied   uint64      `json:"applied_index,omitempty"`
	LastHeard job.Instant `json:"last_heard,omitzero"`
	Problem   string      `json:"problem,omitempty"`
	State     string      `json:"state,omitempty"`   // leader, follower, candidate, unreachable
	Lag       *uint64     `json:"lag,omitempty"`     // log entries that it had not applied
	SkewMS    *int64      `json:"skew_ms,omitempty"` // its clock against the majority's
	Disk      *DiskSpace  `json:"disk,omitempty"`
}

// WorkerStatus is one worker's session as the leader sees it.
type WorkerStatus struct {
	Worker    string            `json:"worker"`
	Namespace string            `json:"namespace,omitempty"` // whose runs it takes; empty: those of all
	Types     []job.Type        `json:"types"`
	Tags      map[string]string `json:"tags,omitempty"`
	Slots     int               `json:"slots"`
	Busy      int               `json:"busy"`
	LastHeard job.Instant       `json:"last_heard"`
	Where     string            `json:"where,omitempty"`   // host, process and directory, as it told
	Waiting   bool              `json:"waiting,omitempty"` // not heard since this leadership began, and it has runs
}

// HistoryStatus is the extent of the history log.
type HistoryStatus struct {
	First uint64 `json:"first_seq"`
	Last  uint64 `json:"last_seq"`
}

// Problem is an error as it travels: RFC 9457 with the code, field and remedy of job.Error.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	job.Error
}

// Patch is an RFC 7386 merge patch of a job.
type Patch = json.RawMessage

// CancelResult says how many open runs a cancel took.
type CancelResult struct {
	Canceled int `json:"canceled"`
}

// Queue is a queue that is declared or that jobs use.
type Queue struct {
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	Declared    bool        `json:"declared"`    // false: only jobs name it; no limit, not paused
	Concurrency int         `json:"concurrency"` // how many of its runs may be with workers at once; 0: no limit
	Paused      bool        `json:"paused"`
	Jobs        int         `json:"jobs"`
	Running     int         `json:"running"` // claimed and without a result, on all workers
	Backlog     int64       `json:"backlog"` // due and not claimed
	BacklogMore bool        `json:"backlog_more,omitempty"`
	OldestDueAt job.Instant `json:"oldest_due_at,omitzero"`
	Workers     []string    `json:"workers"`               // that take it; null if the node that answers does not lead
	WaitReason  string      `json:"wait_reason,omitempty"` // why its backlog is not claimed
	Version     uint64      `json:"version,omitempty"`
	UpdatedAt   job.Instant `json:"updated_at,omitzero"`
}

// QueueList is all queues of a namespace, or of all, by namespace and name.
type QueueList struct {
	Queues []Queue `json:"queues"`
}

// QueueChange is what to change of a queue; nil leaves it as it is.
type QueueChange struct {
	Concurrency *int  `json:"concurrency,omitempty"`
	Paused      *bool `json:"paused,omitempty"`
}

// MediaBackup is the content type of a backup.
const MediaBackup = "application/vnd.carillon.backup"

// The headers of a backup.
const (
	HeaderCluster = "Carillon-Cluster"
	HeaderIndex   = "Carillon-Index"
	HeaderAge     = "Carillon-Stale-Ms"
)

// BackupInfo is what a node says of a backup before it sends it.
type BackupInfo struct {
	ClusterID string
	Index     uint64        // the last log entry in it
	Age       time.Duration // how long ago this was the leader's state, as far as the node knows
	Size      int64
}

// Headers writes the info into a response's headers, beside its length.
func (i BackupInfo) Headers(h http.Header) {
	h.Set(HeaderCluster, i.ClusterID)
	h.Set(HeaderIndex, strconv.FormatUint(i.Index, 10))
	h.Set(HeaderAge, strconv.FormatInt(i.Age.Milliseconds(), 10))
}

// ReleaseResult says what a release did.
type ReleaseResult struct {
	Released  bool        `json:"released"`            // this call ended the hold; false if there was none any more
	Releasing bool        `json:"releasing,omitempty"` // open runs of the backup are still being recorded as lost
	At        job.Instant `json:"released_at,omitzero"`
}

// HoldStatus says that a restored cluster waits to be released.
type HoldStatus struct {
	Since       job.Instant `json:"since"` // when the backup was restored
	FromCluster string      `json:"from_cluster"`
	FromIndex   uint64      `json:"from_index"`
	Releasing   bool        `json:"releasing,omitempty"` // released; its open runs are being recorded as lost
	Remedy      string      `json:"remedy"`
}

// JoinRequest is how a node asks to become a member, or says that it is one and has changed.
type JoinRequest struct {
	NodeID     string            `json:"node_id"`
	InstanceID string            `json:"instance_id"` // of its data directory
	Address    string            `json:"address"`     // host:port that it advertises
	Version    string            `json:"version,omitempty"`
	Level      int               `json:"level"` // the feature level that it supports
	Slots      int               `json:"slots,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ClusterID  string            `json:"cluster_id,omitempty"` // the cluster that its directory belongs to, if it does
	Epoch      uint64            `json:"epoch,omitempty"`
	Member     bool              `json:"member,omitempty"` // it has state of the cluster: it must still be a member

	// What a secure cluster asks of a new node: a request for a certificate, and that it has a join token. The token's
	// secret is never sent.
	CSR       []byte `json:"csr,omitempty"`        // DER
	JoinToken string `json:"join_token,omitempty"` // its id
	Proof     []byte `json:"proof,omitempty"`
}

// JoinReply says which cluster took the node in.
type JoinReply struct {
	ClusterID string `json:"cluster_id"`
	Epoch     uint64 `json:"epoch"`
	Index     uint64 `json:"index"` // the log entry that made it a member, or moved it
	Leader    string `json:"leader"`

	Certificate []byte `json:"certificate,omitempty"` // of the node, in DER
	CA          []byte `json:"ca,omitempty"`
	// Chain is how former CAs vouch for the CA, and Trusted the ones that count besides while it takes their place.
	Chain   [][]byte `json:"chain,omitempty"`
	Trusted [][]byte `json:"trusted,omitempty"`
}

// NodeRequest names a member.
type NodeRequest struct {
	NodeID string `json:"node_id,omitempty"`
	Force  bool   `json:"force,omitempty"` // of a transfer: also to a node whose clock is wrong or not known
}

// DevKillRequest names a node of a cluster to play with that is to be killed.
type DevKillRequest struct {
	NodeID string `json:"node_id"`
	Passed bool   `json:"passed,omitempty"` // another node passes it on; it goes no further
}

// NodeInfo is what one node says of itself alone, leader or not.
type NodeInfo struct {
	NodeID     string      `json:"node_id"`
	InstanceID string      `json:"instance_id"`
	ClusterID  string      `json:"cluster_id"`
	Epoch      uint64      `json:"epoch"`
	Address    string      `json:"address"`
	Version    string      `json:"version"`
	Level      int         `json:"level"`
	State      string      `json:"state"`
	Leader     string      `json:"leader"`
	Term       uint64      `json:"term"`
	Applied    uint64      `json:"applied_index"` // everything up to this log entry is in its state
	Now        job.Instant `json:"now"`
	Removed    bool        `json:"removed,omitempty"` // it is no longer a member
}

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
}

// JoinToken is a join token as it is listed.
type JoinToken struct {
	ID        string      `json:"id"`
	Status    string      `json:"status"` // active, expired, used up or revoked
	Uses      int         `json:"uses"`
	Used      int         `json:"used"`
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
	After  uint64 // those with a higher number
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
	Value string   `json:"value"`
	Hosts []string `json:"hosts,omitempty"` // where it may be sent to, HOST or HOST:PORT; none: anywhere
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

// WarningHeader says what was done and is better done otherwise.
const WarningHeader = "Carillon-Warning"

// GroupHeader names a group: between nodes the one that a request is for, of a worker the one whose leader it means.
const GroupHeader = "Carillon-Group"

package wire

import (
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

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
	Groups      []GroupStatus     `json:"groups"` // the control group first; most clusters have no other
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
	Growth      *Growth           `json:"growth,omitempty"`   // of the number of groups; likewise
	Raft        map[string]string `json:"raft"`
	Disk        *DiskSpace        `json:"disk,omitempty"`
	Skipped     []SkippedEntry    `json:"skipped_entries,omitempty"`
	Troubles    []Trouble         `json:"troubles,omitempty"` // what is wrong with the cluster or a node of it
	// Notifications is there only if some could not be sent so far.
	Notifications *NotificationStatus `json:"notifications,omitempty"`
}

// OnClock moves what a status of another node says of the past to the clock of the node that passes it on, which says
// what time it is now. Below slack it is left as it is: that much time may have passed on the way.
func (s *Status) OnClock(now job.Instant, slack time.Duration) {
	d := now - s.Now
	if s.Now == 0 || time.Duration(max(d, -d))*time.Millisecond <= slack {
		return
	}
	s.Now = now
	move := func(at *job.Instant) {
		if *at != 0 {
			*at += d
		}
	}
	for i := range s.Members {
		move(&s.Members[i].LastHeard)
	}
	for i := range s.Workers {
		move(&s.Workers[i].LastHeard)
	}
	for i := range s.Troubles {
		move(&s.Troubles[i].Since)
	}
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
	TroubleNoLeader     = "no_leader"
	TroubleHold         = "hold"          // the leader's clock: nothing is started or created
	TroubleStopped      = "stopped"       // a node takes no part: its state is from before a recovery, or differs
	TroubleStatesDiffer = "states_differ" // of voters, and none has a majority
	TroubleRestored     = "restored"      // the cluster waits to be released
	TroubleUnreachable  = "unreachable"   // a member does not answer
	TroubleMember       = "member"        // a member is not as it should be
	TroubleClock        = "clock_skew"    // a member's clock
	TroubleDisk         = "disk_low"
	TroubleLag          = "lag"
	TroubleFewVoters    = "few_voters"
	TroubleBacklog      = "no_worker"   // work is due that no worker takes
	TroubleUnscheduled  = "unscheduled" // jobs have no next occurrence, or two
	TroubleNotReady     = "not_ready"
	TroubleInsecure     = "insecure"  // no TLS and no tokens, on purpose
	TroubleRotation     = "rotation"  // of the CA waits for a member
	TroubleKeys         = "keys_lost" // no voter has the keys of the cluster

	TroubleOtherCluster = "other_cluster" // an address of --cluster belongs to another cluster
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
	Leaving  bool              `json:"leaving,omitempty"` // it is being removed
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

// GroupStatus is one Raft group of the cluster.
type GroupStatus struct {
	ID          uint32   `json:"id"`
	Leader      string   `json:"leader"` // the node that leads it; empty without one
	Term        uint64   `json:"term"`
	Members     []string `json:"members"` // the nodes that have a replica
	Jobs        uint64   `json:"jobs"`
	OpenRuns    int      `json:"open_runs"`
	Backlog     int64    `json:"backlog"` // due and not claimed; counting stops at 10,000
	BacklogMore bool     `json:"backlog_more,omitempty"`
	DeadLetters uint64   `json:"dead_letters"`
	Problem     string   `json:"problem,omitempty"` // why it does not do its work
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
	Records uint64 `json:"records"`   // how many there are, in all groups
	First   uint64 `json:"first_seq"` // with several groups each has numbers of its own, and these are 0
	Last    uint64 `json:"last_seq"`
}

// MediaBackup is the content type of a backup.
const MediaBackup = "application/vnd.carillon.backup"

// The headers of a backup.
const (
	HeaderCluster = "Carillon-Cluster"
	HeaderIndex   = "Carillon-Index"
	HeaderAge     = "Carillon-Stale-Ms"
	HeaderGroups  = "Carillon-Groups" // of a cluster with several
)

// BackupInfo is what a node says of a backup before it sends it.
type BackupInfo struct {
	ClusterID string
	Index     uint64        // the last log entry in it
	Age       time.Duration // how long ago this was the leader's state, as far as the node knows
	Size      int64
	Groups    uint32 // how many groups of jobs a cluster with several has
}

// Headers writes the info into a response's headers, beside its length.
func (i BackupInfo) Headers(h http.Header) {
	h.Set(HeaderCluster, i.ClusterID)
	h.Set(HeaderIndex, strconv.FormatUint(i.Index, 10))
	h.Set(HeaderAge, strconv.FormatInt(i.Age.Milliseconds(), 10))
	if i.Groups > 0 {
		h.Set(HeaderGroups, strconv.FormatUint(uint64(i.Groups), 10))
	}
}

// ReleaseResult says what a release did.
type ReleaseResult struct {
	Released  bool        `json:"released"`            // this call ended the hold; false if there was none any more
	Releasing bool        `json:"releasing,omitempty"` // open runs of the backup are still being recorded as lost
	At        job.Instant `json:"released_at,omitzero"`
	Waiting   []uint32    `json:"waiting_groups,omitempty"` // groups that are still on hold, and follow by themselves
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
	Recovery   string            `json:"recovery,omitempty"`
	// Member is refused: a member says what it is to the leader, over a connection of its own.
	Member bool `json:"member,omitempty"`

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
	Recovery  string `json:"recovery,omitempty"` // that began the epoch
	Index     uint64 `json:"index"`              // the log entry that made it a member, or moved it
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

// Removal is how far the removal of a node is. One that has replicas of groups is removed when each group has confirmed
// that it goes on without it.
type Removal struct {
	NodeID  string   `json:"node_id"`
	Removed bool     `json:"removed"`
	Groups  []uint32 `json:"groups,omitempty"` // that it still has replicas of
}

// MoveGroupRequest says on which nodes a group is to have its replicas.
type MoveGroupRequest struct {
	Group uint32   `json:"group"`
	To    []string `json:"to"` // one to three
}

// GroupMove is how far a group is from where it was told to be.
type GroupMove struct {
	Group   uint32   `json:"group"`
	To      []string `json:"to"`
	Done    bool     `json:"done"`
	Voting  []string `json:"voting,omitempty"`  // of To: these have caught up
	Adding  []string `json:"adding,omitempty"`  // of To: these have not
	Leaving []string `json:"leaving,omitempty"` // still have a replica, which goes when all of To vote
	Problem string   `json:"problem,omitempty"` // why it does not go on
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
	Recovery   string      `json:"recovery,omitempty"` // that began the epoch
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

// LogHash is what one node knows of the entries in its state: two that applied the same have the same hash.
type LogHash struct {
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
	Epoch     uint64 `json:"epoch"`
	Recovery  string `json:"recovery,omitempty"` // that began the epoch
	Group     uint32 `json:"group"`
	Index     uint64 `json:"index"`          // that was asked about
	Hash      string `json:"hash,omitempty"` // over all entries up to it; empty: not known
	Oldest    uint64 `json:"oldest"`         // the first entry whose hash is known
	Applied   uint64 `json:"applied_index"`  // the last one
}

// GrowRequest asks for more groups of jobs.
type GrowRequest struct {
	Groups int `json:"groups"` // how many there are to be
}

// Growth is how many groups of jobs a cluster has, and is to have.
type Growth struct {
	Groups  int        `json:"groups"` // that take new jobs
	Want    int        `json:"want"`
	Done    bool       `json:"done"`              // all nodes that answer know of as many as it is to have
	New     []NewGroup `json:"new"`               // those that do not take jobs yet
	Waiting string     `json:"waiting,omitempty"` // what the leader waits for
}

// NewGroup is a group that is being made.
type NewGroup struct {
	ID       uint32   `json:"id"`
	State    string   `json:"state"`    // waiting, beginning, begun
	Replicas []string `json:"replicas"` // the nodes that have one, or are to
}

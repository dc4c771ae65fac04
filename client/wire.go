package client

import "github.com/carillon-scheduler/carillon/api/wire"

// What travels is declared in package wire, which the server has in common with this one. A program that uses the
// client needs to import nothing else.
type (
	ApplyOptions       = wire.ApplyOptions
	ApplyResult        = wire.ApplyResult
	BackfillRequest    = wire.BackfillRequest
	ChangedField       = wire.ChangedField
	AuditPage          = wire.AuditPage
	AuditQuery         = wire.AuditQuery
	Seqs               = wire.Seqs
	AuditRecord        = wire.AuditRecord
	BackfillResult     = wire.BackfillResult
	BackupInfo         = wire.BackupInfo
	BulkLine           = wire.BulkLine
	BulkResult         = wire.BulkResult
	CalendarList       = wire.CalendarList
	CancelResult       = wire.CancelResult
	DeadGroup          = wire.DeadGroup
	DeadGroupPage      = wire.DeadGroupPage
	DeadPage           = wire.DeadPage
	DeadQuery          = wire.DeadQuery
	DeadResult         = wire.DeadResult
	Check              = wire.Check
	DiskSpace          = wire.DiskSpace
	Event              = wire.Event
	HistoryStatus      = wire.HistoryStatus
	HoldStatus         = wire.HoldStatus
	JobAction          = wire.JobAction
	JobActionProgress  = wire.JobActionProgress
	JobPage            = wire.JobPage
	JobQuery           = wire.JobQuery
	JobStats           = wire.JobStats
	JoinReply          = wire.JoinReply
	JoinRequest        = wire.JoinRequest
	Member             = wire.Member
	NodeInfo           = wire.NodeInfo
	LogHash            = wire.LogHash
	NodeRequest        = wire.NodeRequest
	BackupNote         = wire.BackupNote
	NotificationStatus = wire.NotificationStatus
	Occurrence         = wire.Occurrence
	OccurrencePage     = wire.OccurrencePage
	OccurrenceQuery    = wire.OccurrenceQuery
	Patch              = wire.Patch
	PreviewRequest     = wire.PreviewRequest
	PreviewResult      = wire.PreviewResult
	PreviewTime        = wire.PreviewTime
	Problem            = wire.Problem
	Queue              = wire.Queue
	QueueChange        = wire.QueueChange
	QueueList          = wire.QueueList
	ReleaseResult      = wire.ReleaseResult
	ScrubStatus        = wire.ScrubStatus
	GroupScrub         = wire.GroupScrub
	RotateRequest      = wire.RotateRequest
	Rotation           = wire.Rotation
	GrowRequest        = wire.GrowRequest
	Growth             = wire.Growth
	NewGroup           = wire.NewGroup
	RunDetail          = wire.RunDetail
	RunPage            = wire.RunPage
	LoadQuery          = wire.LoadQuery
	UpcomingLoad       = wire.UpcomingLoad
	UpcomingPage       = wire.UpcomingPage
	UpcomingQuery      = wire.UpcomingQuery
	DevKillRequest     = wire.DevKillRequest
	EditPreview        = wire.EditPreview
	LongRun            = wire.LongRun
	RunSummary         = wire.RunSummary
	RunQuery           = wire.RunQuery
	Secret             = wire.Secret
	SecretRequest      = wire.SecretRequest
	SkippedEntry       = wire.SkippedEntry
	Stats              = wire.Stats
	Status             = wire.Status
	Token              = wire.Token
	TokenCreated       = wire.TokenCreated
	TokenRequest       = wire.TokenRequest
	GroupMove          = wire.GroupMove
	JoinToken          = wire.JoinToken
	MoveGroupRequest   = wire.MoveGroupRequest
	Removal            = wire.Removal
	JoinTokenCreated   = wire.JoinTokenCreated
	JoinTokenRequest   = wire.JoinTokenRequest
	Trouble            = wire.Trouble
	Whoami             = wire.Whoami
	Why                = wire.Why
	GroupStatus        = wire.GroupStatus
	WorkerGrant        = wire.WorkerGrant
	WorkerStatus       = wire.WorkerStatus
)

// Media types, headers and codes that travel.
const (
	LeaderHeader       = wire.LeaderHeader
	WarningHeader      = wire.WarningHeader
	MediaBackup        = wire.MediaBackup
	MediaJSON          = wire.MediaJSON
	MediaMsgpack       = wire.MediaMsgpack
	TroubleBacklog     = wire.TroubleBacklog
	TroubleClock       = wire.TroubleClock
	TroubleDisk        = wire.TroubleDisk
	TroubleHold        = wire.TroubleHold
	TroubleLag         = wire.TroubleLag
	TroubleFewVoters   = wire.TroubleFewVoters
	TroubleMember      = wire.TroubleMember
	TroubleNoLeader    = wire.TroubleNoLeader
	TroubleNotReady    = wire.TroubleNotReady
	TroubleInsecure    = wire.TroubleInsecure
	TroubleRestored    = wire.TroubleRestored
	TroubleUnreachable = wire.TroubleUnreachable
)

// Package event has the names of what a node says in its log that others act on. A line has its name in the attribute
// "event", beside a message for people that may change. docs/observe.md says what each means; proof/event_test.go holds
// that each is there and is logged.
package event

import "log/slog"

// The events, by what they are about. Each is one line in the log.
var (
	// Leadership.
	Standing       = of("standing")
	Leading        = of("leading")
	NotLeading     = of("not_leading")
	Takeover       = of("takeover")
	TakeoverFailed = of("takeover_failed")
	HoldBegun      = of("hold_begun")
	HoldEnded      = of("hold_ended")

	// Work.
	LeaseExpired        = of("lease_expired")
	DeadLetter          = of("dead_letter")
	DeadLettersMore     = of("dead_letters_more")
	JobQuarantined      = of("job_quarantined")
	NotificationGivenUp = of("notification_given_up")

	// Members.
	Joined        = of("joined")
	Removed       = of("removed")
	MemberAdded   = of("member_added")
	MemberUpdated = of("member_updated")
	MemberVotes   = of("member_votes")
	MemberLeaving = of("member_leaving")
	MemberRemoved = of("member_removed")
	LevelRaised   = of("feature_level_raised")

	// Formation.
	Forming          = of("forming")
	FormationRefused = of("formation_refused")
	Formed           = of("formed")
	OtherCluster     = of("other_cluster")

	// The node and its cluster.
	DiskLow            = of("disk_low")
	DiskRoom           = of("disk_room")
	CertificateRenewed = of("certificate_renewed")
	Restored           = of("restored")
	Released           = of("released")
	SpansNotExported   = of("spans_not_exported")
	SpansExported      = of("spans_exported")
)

func of(name string) slog.Attr { return slog.String("event", name) }

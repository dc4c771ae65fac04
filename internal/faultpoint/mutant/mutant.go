// Package mutant lists faults that can be planted into the product to see whether its tests find them. A normal build
// has none of them: On is then a constant, and the compiler leaves out whatever stands behind it. With the build tag
// carillon_mutants one can be switched on by the environment variable CARILLON_MUTANT, or by Set.
package mutant

// Mutant is one fault.
type Mutant uint8

// The faults. Some rules have a second line of defence behind them; such a mutant takes both away, or it would change
// nothing that could be seen. Where it stands in the code says which.
const (
	None            Mutant = iota
	SkipFence              // a result with an old fence closes the run all the same
	DispatchEarly          // a worker is told of a run before the claim is committed
	ForgetTerm             // what an ended leadership still proposes is applied under the next one
	DropCatchup            // the run that is to catch up after an outage is recorded as missed
	LeakOverlap            // a run starts although one is open
	ReuseKey               // two runs of a job have the same idempotency key
	ExpireEarly            // a lease ends long before its time
	IgnoreGen              // a claim that was computed from an earlier definition is taken
	BacklogMissed          // what waited for a slot is treated as missed
	LoseEvents             // what a commit put into the due index is not announced, and nothing sweeps over what is due
	EarlyDeadline          // a run expires before its deadline
	RepeatOnce             // a lost run is repeated in spite of at_most_once
	ForgetNotRun           // occurrences that did not run leave no record
	IgnoreQueue            // runs of a paused or full queue are claimed
	Revive                 // a heartbeat is told that a run is its worker's own which was taken back
	OldReceipt             // a session of an earlier leader decides what its worker has received
	PollOffersTwice        // a poll that is repeated offers its slots once more
	OutOfOrder             // the runs of a session are handed out out of order
	GiveTwice              // a poll is answered with what another poll of the same queue was just given
	TrustLeader            // a leader that was replaced and cannot notice it goes on extending leases
	InheritedDead          // an inherited session counts as dead: any process of that name takes its runs
	ReleaseUnproven        // a process takes the runs of another one of its name without a proof that that one ended
	KeepLeading            // a leader whose clock is not the majority's never hands over
	WrongSuccessor         // it hands over to the member whose clock is farthest from the majority's
	NoFinalStamp           // a planned transfer commits no stamp first
	MixPayload             // a claim of a batch is sent with the payload of the one before it
	StaleDefinition        // a claim is made from a definition that was edited since
	EditedTimeout          // the next leader holds a run to the timeout that an edit gave its job
	ResendEdited           // a claim not sent yet goes out under its fence with what a later edit made of the job
	JudgeBySlot            // an overlap is judged when a slot is free, not at the occurrence's own time
	SerialFirst            // catch-up runs push the live schedule aside
	InventNext             // the last run by max_runs leaves an occurrence behind it that does not exist
	// What is remembered, and for how long.
	TrimMore        // history is trimmed by one record too many
	CleanEarly      // a one-off goes before its retention is over
	ForgetRequests  // the outcomes of requests are forgotten when the leader changes
	RepeatNotice    // what another leader may have sent is sent again
	DropNotice      // a notification that could not be taken is not sent again
	NewestFirst     // what waits for its turn starts newest first
	HalfLease       // an inherited lease lasts half as long as it should
	RetryUncounted  // a retry does not count towards the limit of its queue
	StaleCalendar   // a calendar that was changed holds as it was
	RestoreFires    // what was due before the release of a restored cluster runs in it
	WrongNamespace  // runs are claimed for workers of other namespaces
	FreshKey        // a node that repeats a request without a key makes another one each time
	DropReservation // a name that its home keeps for a job of another group is given to a second one
	// Several groups.
	ReleaseAny     // a release of a name that was given anew since, under another number, frees it
	WrongGroup     // a node that speaks for another group is let in
	ReusedReplica  // a data directory takes a replica under a number that it had before
	RevivedReplica // a replica that was given up is let in
	GrowEarly      // new groups take jobs before the nodes and the other groups know of them
	// Keys and secrets.
	SecretElsewhere // a redirect takes the value of a secret to a host that is not one of its own
	ResealSkips     // a secret stays sealed with the cluster key that was replaced
	TrustReplaced   // a CA that is distrusted goes on to vouch for nodes
	RotateEarly     // a rotation ends before every member has a certificate of the new CA
	// Clusters that went on without some of their nodes.
	OtherDirectory // a node that comes back with another data directory is let in
	HeldSnapshot   // a snapshot leaves out what its follower holds back, though raft forgets that entry of the log
	OldEpoch       // a node goes on although it heard that the cluster was recovered without it
	TrustChain     // a replica does not compare the hash over its log with the leader's
	TrustLog       // a damaged entry of the log is applied and sent
	TrustState     // a replica whose state is another one than that of most goes on
	TrustReads     // a node that believes that it leads answers reads without asking whether it still does
	EarlyProof     // a read is answered on the word of a majority that was asked before the read came
	TwoStates      // a replica that is found to differ from the leader goes on
	OldFences      // a restored or recovered cluster gives out fences that the one before it gave out
	// Clusters that begin.
	FoundAlone // the first node of --cluster founds without asking the others
	// Pauses and catch-up.
	PauseDrops // a resume drops what was due before the pause
	LateSkips  // a run that a catch-up run made late has the occurrences behind it skipped
	NoRoom     // a catch-up run starts although it will be in the way of the next occurrence
	// Ends of attempts, and what follows them.
	EditedDelivery // whether a run is repeated is decided by the delivery that an edit gave its job since the claim
	StaleRetry     // a failed attempt is judged by a retry rule that an edit has replaced
	ResumeRetries  // a resume has what waits for its retry start at once
	LostWaits      // a run whose worker was lost waits as if it had failed
	RedriveCounts  // a redriven run counts the failures before, for its delays and for when it is given up
	EndsBeforeMark // a run ends when a leader says whose clock was set back, and not at the mark
	TakeAll        // a namespace takes every slot, and leaves none to the others
	KeepClass      // what waits for a worker goes on waiting for the kind that it needed before an edit
	count
)

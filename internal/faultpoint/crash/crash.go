// Package crash has points at which a process ends as by kill -9, for tests of what a crash between two steps leaves
// behind. A normal build has none of them. With the build tag carillon_crash a test arms a point by putting a file with
// its name into the directory that CARILLON_CRASH names: the first process that gets there takes the file away and
// dies. So one of several processes dies, once, and the points may be armed while they run.
package crash

// The points, all of them about names that have their homes in other groups. "Home" dies where the home's leader does,
// the others where that of the job's group does.
const (
	HomeReserved  = "home-reserved"  // a reservation is committed at its home, which has not answered
	NameGranted   = "name-granted"   // it is known in the job's group, and the job is not proposed
	JobCreated    = "job-created"    // the create is committed, and its client not answered
	JobRenamed    = "job-renamed"    // the update is committed, and its client not answered
	BeforeTell    = "before-tell"    // the home is about to be told that a job has the name
	HomeConfirmed = "home-confirmed" // that is committed at the home, which has not answered
	AfterTell     = "after-tell"     // the home has answered
	BeforePay     = "before-pay"     // the home of a job's former name is about to be told to release it
	HomeReleased  = "home-released"  // that is committed at the home, which has not answered
	AfterPay      = "after-pay"      // the home has answered, and the group still has it down as owed
	HomeAsks      = "home-asks"      // the clean-up is about to ask what became of a reservation
	JobAborted    = "job-aborted"    // the group has committed that it never will be, and has not answered
	HomeHeard     = "home-heard"     // it has answered, and the home still keeps the name
	HomeSettled   = "home-settled"   // the name is released or confirmed, and no other is looked at
)

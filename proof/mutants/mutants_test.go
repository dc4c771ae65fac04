//go:build carillon_mutants

package mutants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// bound is how many seeds a fault may take.
const bound = 60

// try is a seed of the simulation: of its ordinary plans, or of one that is made to have a certain thing happen.
type try struct {
	plan string
	seed int
}

func (t try) String() string { return strings.TrimSpace(fmt.Sprintf("%s seed %d", t.plan, t.seed)) }

// hints are what finds a fault. They come first; should they all fail, because plans have changed, the search goes on
// with the first seeds of the ordinary plans, which takes longer and prints what to write here.
var hints = map[mutant.Mutant][]try{
	mutant.SkipFence:      {{"late-result", 1}, {"late-result", 2}},
	mutant.DispatchEarly:  {{"", 1}, {"", 3}},
	mutant.ForgetTerm:     {{"swings", 1}, {"swings", 2}, {"swings", 3}},
	mutant.DropCatchup:    {{"", 1}, {"", 6}},
	mutant.LeakOverlap:    {{"", 1}, {"", 3}},
	mutant.ReuseKey:       {{"", 1}},
	mutant.ExpireEarly:    {{"", 1}},
	mutant.IgnoreGen:      {{"", 7}, {"", 7}},
	mutant.BacklogMissed:  {{"backlog", 1}, {"backlog", 2}},
	mutant.LoseEvents:     {{"", 5}, {"", 2}},
	mutant.EarlyDeadline:  {{"", 8}, {"", 12}},
	mutant.RepeatOnce:     {{"late-result", 1}, {"late-queue", 1}},
	mutant.IgnoreQueue:    {{"", 2}, {"", 8}},
	mutant.GiveTwice:      {{"late-queue", 1}, {"late-queue", 2}},
	mutant.TrustLeader:    {{"deaf-leader", 1}, {"deaf-leader", 2}},
	mutant.KeepLeading:    {{"wrong-clock", 1}, {"drift", 1}},
	mutant.WrongSuccessor: {{"wrong-clock", 1}, {"wrong-clock", 2}},
	mutant.NoFinalStamp:   {{"planned", 1}, {"planned", 2}},

	mutant.InheritedDead:   {{"clones", 1}, {"clones", 2}, {"clones", 3}},
	mutant.ReleaseUnproven: {{"clones", 1}, {"clones", 2}},
	mutant.MixPayload:      {{"", 1}, {"", 3}},
	mutant.StaleDefinition: {{"edits", 1}, {"edits", 2}},
	mutant.EditedDelivery:  {{"verdicts", 1}, {"verdicts", 2}},
	mutant.StaleRetry:      {{"verdicts", 1}, {"verdicts", 2}},
	mutant.ResumeRetries:   {{"retried", 1}, {"retried", 2}},
	mutant.LostWaits:       {{"retried", 1}, {"retried", 2}},
	mutant.RedriveCounts:   {{"retried", 1}, {"retried", 2}},
	mutant.EditedTimeout:   {{"edits", 1}, {"edits", 2}, {"edits", 3}},
	mutant.ResendEdited:    {{"edits", 2}, {"edits", 2}, {"edits", 3}, {"edits", 4}},
	mutant.JudgeBySlot:     {{"busy-slot", 1}, {"busy-slot", 2}},
	mutant.PauseDrops:      {{"pauses", 1}, {"pauses", 2}},
	mutant.LateSkips:       {{"backfills", 1}, {"backfills", 2}},
	mutant.NoRoom:          {{"backfills", 1}, {"backfills", 2}},
	mutant.SerialFirst:     {{"catch-up", 1}, {"catch-up", 2}},
	mutant.InventNext:      {{"last-run", 1}, {"last-run", 2}},
	mutant.TrimMore:        {{"remember", 1}, {"remember", 2}},
	mutant.CleanEarly:      {{"remember", 1}, {"remember", 2}},
	mutant.ForgetRequests:  {{"remember", 1}, {"remember", 2}},
	mutant.DropNotice:      {{"refused", 1}, {"refused", 2}},
	mutant.RepeatNotice:    {{"remember", 1}, {"remember", 2}, {"remember", 3}},
	mutant.NewestFirst:     {{"turns", 1}, {"turns", 2}},
	mutant.HalfLease:       {{"inherited", 1}, {"inherited", 2}},
	mutant.RetryUncounted:  {{"limits", 1}, {"limits", 2}},
	mutant.StaleCalendar:   {{"remember", 1}, {"remember", 2}},
	mutant.RestoreFires:    {{"restored", 1}, {"restored", 2}},
	mutant.OldEpoch:        {{"recovered", 1}, {"recovered", 2}},
	mutant.OldFences:       {{"restored", 1}, {"restored", 2}},
	mutant.TrustReads:      {{"old-reads", 1}, {"old-reads", 2}},
	mutant.TwoStates:       {{"put-back", 1}, {"put-back", 2}},
	mutant.WrongNamespace:  {{"namesakes", 1}, {"namesakes", 2}},
	mutant.FreshKey:        {{"bare", 1}, {"bare", 2}, {"bare", 3}},
	mutant.DropReservation: {{"names", 1}, {"names", 2}},
	mutant.KeepClass:       {{"moved", 1}, {"moved", 2}},
	mutant.GrowEarly:       {{"grow-behind", 3}, {"grow-behind", 6}, {"grow-behind", 2}},
}

// byTest is the test of a package that finds a fault which simulated clusters cannot have or show: they are plain, and
// their replicas stay where they are.
var byTest = map[mutant.Mutant]struct{ pkg, name string }{
	mutant.ReleaseAny:      {"node/names", "TestLateReleaseLeavesTheNextJobItsName"},
	mutant.WrongGroup:      {"node", "TestHandshakeOfGroups"},
	mutant.ReusedReplica:   {"node/datadir", "TestReplicaNumbersAreNotUsedAgain"},
	mutant.RevivedReplica:  {"node", "TestHandshakeOfGroups"},
	mutant.SecretElsewhere: {"executor", "TestHTTPRedirectsAwayFromTheHostsOfSecrets"},
	mutant.ResealSkips:     {"node/vault", "TestAllSecretsAreResealed"},
	mutant.TrustReplaced:   {"internal/keys", "TestDistrustedCA"},
	mutant.RotateEarly:     {"fsm", "TestRotationEndsWithTheLastMember"},
	mutant.FoundAlone:      {"node/formation", "TestRandomSchedules"},
	mutant.OtherDirectory:  {"node", "TestHandshakeRules"},
	mutant.HeldSnapshot:    {"node/raftlog", "TestSnapshotHasWhatWasHeld"},
	mutant.EarlyProof:      {"node/propose", "TestVerifyLeaderEndsWithItsCaller"},
	mutant.TrustChain:      {"fsm", "TestReplicaThatDiffersIsTold"},
	mutant.TrustLog:        {"node/raftlog", "TestDamagedEntriesAreNotRead"},
	mutant.TrustState:      {"node", "TestReplicaWithADamagedStateStops"},
	mutant.Revive:          {"scheduler", "TestLeaseExpiryPutsRunsBackAndRefusesALateResult"},
	mutant.OldReceipt:      {"scheduler", "TestLateOlderPollAfterAnElection"},
	mutant.PollOffersTwice: {"scheduler", "TestSameSessionSameRuns"},
	mutant.OutOfOrder:      {"scheduler", "TestFencesOnlyGrow"},
	mutant.TakeAll:         {"scheduler", "TestANamespaceLeavesSlotsToOthers"},
	mutant.EndsBeforeMark:  {"fsm", "TestBusyUntilOfAClockThatIsBehind"},
}

// finding is a line of the table.
type finding struct {
	mutant string
	seeds  int // that it took
	by     string
	why    string
	took   time.Duration
}

// TestMutantsAreFound runs each fault against seeds of the simulation until it is found. Each run is a process of its
// own, so that one that breaks down says so and harms no other.
func TestMutantsAreFound(t *testing.T) {
	root := harness.Sources(t)
	l := &lab{root: root, binary: filepath.Join(t.TempDir(), "sim.test"), healthy: map[try]bool{}}
	build := exec.Command("go", "test", "-c", "-tags", "carillon_mutants", "-o", l.binary, "./proof/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	only := os.Getenv("CARILLON_ONLY") // one mutant, by name
	var mu sync.Mutex
	var table []finding
	t.Run("mutant", func(t *testing.T) {
		for _, m := range mutant.All() {
			if only != "" && only != m.String() {
				continue
			}
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				f := l.find(t, m)
				f.mutant, f.took = m.String(), time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				table = append(table, f)
			})
		}
	})
	slices.SortFunc(table, func(a, b finding) int { return cmp.Compare(a.mutant, b.mutant) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tseeds\tfound by\ttime\twhat was seen")
	for _, f := range table {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", f.mutant, f.seeds, f.by, f.took.Round(100*time.Millisecond), f.why)
	}
	w.Flush()
	t.Logf("\n%s", b.String())
}

// lab is where mutants are looked at.
type lab struct {
	root, binary string

	mu      sync.Mutex
	healthy map[try]bool // what passes without a mutant
}

func (l *lab) find(t *testing.T, m mutant.Mutant) finding {
	if by, ok := byTest[m]; ok {
		return l.test(t, m, by.pkg, by.name)
	}
	return l.search(t, m)
}

// test runs a test of a package with a fault, which it must find, and without.
func (l *lab) test(t *testing.T, m mutant.Mutant, pkg, name string) finding {
	run := func(m mutant.Mutant) (failed bool, out string) {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout", "3m", "-tags", "carillon_mutants",
			"-v", "-run", "^"+name+"$", "./"+pkg)
		cmd.Dir = l.root
		cmd.Env = append(os.Environ(), "CARILLON_MUTANT="+m.String())
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "=== RUN   "+name+"\n") {
			t.Fatalf("%s has no %s, or does not build:\n%s", pkg, name, text)
		}
		return err != nil, string(text)
	}
	found, out := run(m)
	if !found {
		t.Errorf("not found by %s of %s", name, pkg)
		return finding{by: "NOTHING"}
	}
	if failed, out := run(mutant.None); failed {
		t.Errorf("%s of %s fails without the mutant as well:\n%s", name, pkg, out)
	}
	return finding{by: pkg + " " + name, why: why(out)}
}

func (l *lab) search(t *testing.T, m mutant.Mutant) finding {
	tries := slices.Clone(hints[m])
	for seed := 1; seed <= bound; seed++ {
		if it := (try{"", seed}); !slices.Contains(tries, it) && seed%100 != 57 { // that one takes months
			tries = append(tries, it)
		}
	}
	for i, it := range tries {
		found, out := l.simulate(t, m, it)
		if !found {
			continue
		}
		if !l.passes(t, it) {
			t.Logf("%s fails without the mutant as well", it)
			continue
		}
		return finding{seeds: i + 1, by: it.String(), why: why(out)}
	}
	t.Errorf("not found with %d seeds", len(tries))
	return finding{by: "NOTHING"}
}

// simulate runs a seed with a fault and says whether that was found.
func (l *lab) simulate(t *testing.T, m mutant.Mutant, it try) (found bool, out string) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.binary, "-test.run", "^TestSeed$")
	cmd.Dir = filepath.Join(l.root, "proof", "sim")
	cmd.Env = append(os.Environ(), "CARILLON_SIM_SEED="+strconv.Itoa(it.seed), "CARILLON_SIM_PLAN="+it.plan,
		"CARILLON_MUTANT=")
	if m != mutant.None {
		cmd.Env = append(cmd.Env, "CARILLON_MUTANT="+m.String())
	}
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Logf("%s does not get on with %s", m, it)
		return false, ""
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err != nil, string(text)
}

func (l *lab) passes(t *testing.T, it try) bool {
	l.mu.Lock()
	ok, known := l.healthy[it]
	l.mu.Unlock()
	if !known {
		failed, _ := l.simulate(t, mutant.None, it)
		ok = !failed
		l.mu.Lock()
		l.healthy[it] = ok
		l.mu.Unlock()
	}
	return ok
}

// why is the first broken rule in the output of a simulation.
func why(out string) string {
	for _, line := range strings.Split(out, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") || strings.HasPrefix(line, "panic") || strings.HasPrefix(line, "it is not so") ||
			strings.HasPrefix(line, "check of") {
			return line[:min(len(line), 160)]
		}
	}
	for _, line := range strings.Split(out, "\n") { // of a test: what it says first
		if line = strings.TrimSpace(line); strings.Contains(line, "_test.go:") {
			return line[:min(len(line), 160)]
		}
	}
	return "the simulation failed"
}

package store

import (
	"cmp"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// spaceIndex knows in which namespace the jobs of a class are, and how many jobs each namespace has.
type spaceIndex struct {
	ofClass []string // by class number
	number  []int    // in all, by class number
	all     []string // each once
	jobs    []int    // by number
	inUse   int      // how many namespaces have jobs
}

func newSpaceIndex() spaceIndex {
	return spaceIndex{ofClass: []string{job.DefaultNamespace}, number: []int{-1}}
}

func (x *spaceIndex) add(namespace string) {
	i := slices.Index(x.all, namespace)
	if i >= 0 {
		namespace = x.all[i] // one text for all of its classes
	} else {
		i = len(x.all)
		x.all = append(x.all[:i:i], namespace) // views share it
		x.jobs = append(x.jobs, 0)
	}
	x.ofClass, x.number = append(x.ofClass, namespace), append(x.number, i)
}

// count counts jobs of a class.
func (x *spaceIndex) count(class uint32, n int) {
	if int(class) >= len(x.number) || x.number[class] < 0 {
		return // read from the file without checking it
	}
	jobs := &x.jobs[x.number[class]]
	before := *jobs > 0
	*jobs += n
	switch after := *jobs > 0; {
	case after && !before:
		x.inUse++
	case before && !after:
		x.inUse--
	}
}

func (x *spaceIndex) of(class uint32) string {
	if int(class) < len(x.ofClass) {
		return x.ofClass[class]
	}
	return job.DefaultNamespace
}

// OpenRef is an open run as the index knows it.
type OpenRef struct {
	At      int64
	Origin  job.Origin
	Status  job.RunStatus
	Held    bool // waiting because its job is paused; counted as active, not as waiting
	Serial  bool // catch-up, backfill or redriven
	Delayed bool // see Row
}

// index is what is derived from the file and kept in memory: where each job's state is, the open runs by job, and the
// classes. It is rebuilt by one scan at open and never the truth: what it says is looked up in the file before it is
// used.
type index struct {
	chunks  map[uint64]*chunk // by job number / chunkSize; a chunk whose jobs are all gone is freed
	open    map[job.ID][]OpenRef
	openLen int
	status  [len(job.Statuses)]int // how many jobs there are of each
	inHand  int                    // of those: claimed or canceling
	classes []string               // by class number
	classOf map[string]uint32
	queues  queueIndex
	spaces  spaceIndex
	notices int // in the outbox
	tokens  tokenIndex
	secrets secretIndex
	names   nameIndex

	read     uint64 // the log entry that the file had when it was read
	activity map[string]Activity
}

const chunkSize = 1024

type chunk struct {
	used  int
	where [chunkSize]spot
}

// spot packs a place into 16 bytes: ten million of them are kept.
type spot struct {
	ready int64 // ready time << 8 | lane << 2 | parked << 1 | present; of a parked job its status << 8
	at    int64
}

// packSpot packs a place, and of a parked job its status: one that is due is scheduled.
func packSpot(p Place, s *State) spot {
	if p.Parked {
		return spot{ready: int64(slices.Index(job.Statuses[:], s.Status(true)))<<8 | 1<<1 | 1}
	}
	return spot{ready: p.Ready<<8 | int64(p.Lane)<<2 | 1, at: p.At}
}

// count counts a job for its status.
func (x *index) count(s spot, n int) {
	switch s.ready & 3 {
	case 1:
		x.status[0] += n
	case 3:
		x.status[s.ready>>8] += n
	}
}

func (s spot) place() (Place, bool) {
	if s.ready&1 == 0 {
		return Place{}, false
	}
	if s.ready&2 != 0 {
		return Place{Parked: true}, true
	}
	return Place{Ready: s.ready >> 8, Lane: job.Lane(s.ready >> 2 & 0x3f), At: s.at}, true
}

func newIndex() *index {
	return &index{chunks: map[uint64]*chunk{}, open: map[job.ID][]OpenRef{}, classes: []string{""},
		classOf: map[string]uint32{}, queues: newQueueIndex(), spaces: newSpaceIndex()}
}

func (x *index) get(id job.ID) spot {
	if c := x.chunks[uint64(id)/chunkSize]; c != nil {
		return c.where[uint64(id)%chunkSize]
	}
	return spot{}
}

func (x *index) set(id job.ID, s spot) {
	n := uint64(id) / chunkSize
	c := x.chunks[n]
	if c == nil {
		if s == (spot{}) {
			return
		}
		c = &chunk{}
		x.chunks[n] = c
	}
	old := &c.where[uint64(id)%chunkSize]
	switch {
	case *old == (spot{}) && s != (spot{}):
		c.used++
	case *old != (spot{}) && s == (spot{}):
		c.used--
	}
	x.count(*old, -1)
	x.count(s, 1)
	*old = s
	if c.used == 0 {
		delete(x.chunks, n)
	}
}

// jobs is how many jobs have a state.
func (x *index) jobs() int {
	n := 0
	for _, c := range x.chunks {
		n += c.used
	}
	return n
}

func (x *index) setOpen(id job.ID, refs []OpenRef) {
	x.openLen += len(refs) - len(x.open[id])
	if len(refs) == 0 {
		delete(x.open, id)
		return
	}
	x.open[id] = refs
}

// buildIndex scans the file once.
func buildIndex(tx *bolt.Tx, recentNames int) (*index, error) {
	x := newIndex()
	if err := x.readClasses(tx); err != nil {
		return nil, err
	}
	if err := x.readNames(tx, recentNames); err != nil {
		return nil, err
	}
	var err error
	if x.secrets, err = readSecrets(tx); err != nil {
		return nil, err
	}
	if x.tokens, err = readTokens(tx); err != nil {
		return nil, err
	}
	c := tx.Bucket(bucketDue).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		d, err := parseDueKey(k)
		if err != nil {
			return nil, err
		}
		if d.Kind != KindOccurrence {
			continue
		}
		if x.get(d.Job) != (spot{}) {
			return nil, fmt.Errorf("%w: %s has two occurrence entries", ErrCorrupt, d.Job)
		}
		x.set(d.Job, packSpot(Place{Lane: d.Lane, Ready: d.Ready, At: d.At}, nil))
		x.countState(v)
	}
	c = tx.Bucket(bucketParked).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(k) != 8 {
			return nil, ErrCorrupt
		}
		id := job.ID(parseU64(k))
		if x.get(id) != (spot{}) {
			return nil, fmt.Errorf("%w: %s is both parked and due", ErrCorrupt, id)
		}
		s, _ := DecodeState(v) //nolint:errcheck // one that cannot be read is found when it is needed
		x.set(id, packSpot(Place{Parked: true}, &s))
		x.countState(v)
	}
	c = tx.Bucket(bucketRuns).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		rk, err := parseRunKey(k)
		if err != nil || len(v) < 3 {
			return nil, ErrCorrupt
		}
		ref := OpenRef{At: rk.At, Origin: rk.Origin, Status: job.RunStatus(v[0]), Held: v[1] != 0,
			Serial: v[2]&rowSerial != 0, Delayed: v[2]&rowDelayed != 0}
		x.open[rk.Job] = append(x.open[rk.Job], ref)
		x.openLen++
		if inHand(ref.Status) {
			x.inHand++
		}
		if inHand(ref.Status) && len(v) >= rowClassAt+4 {
			if q := x.queues.ofRaw(parseU32(v[rowClassAt:])); q.Name != "" {
				q.Claimed++
			}
		}
	}
	if b := tx.Bucket(bucketOutbox); b != nil {
		c = b.Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			x.notices++
		}
	}
	return x, nil
}

// readClasses reads the classes and the rows of the queues: what is counted afterwards is counted by them.
func (x *index) readClasses(tx *bolt.Tx) error {
	c := tx.Bucket(bucketClasses).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(k) != 4 || int(parseU32(k)) != len(x.classes) {
			return ErrCorrupt
		}
		x.classOf[string(v)] = uint32(len(x.classes))
		x.classes = append(x.classes, string(v))
		class := job.ParseClass(string(v))
		x.queues.addClass(&class)
		x.spaces.add(class.Namespace)
	}
	rows := tx.Bucket(bucketQueues)
	if rows == nil {
		return nil // a file from before there were rows, opened for reading
	}
	return rows.ForEach(func(k, v []byte) error {
		q, err := decodeQueue(v)
		if err != nil || len(k) == 0 {
			return ErrCorrupt
		}
		q.Namespace, q.Name = unscoped(string(k))
		u := &x.queues.all[x.queues.number(q.Key())]
		u.Queue, u.Declared = q, true
		x.queues.rows++
		return nil
	})
}

// countState counts a job for its queue and its namespace. A state that cannot be read is found when it is needed.
func (x *index) countState(v []byte) {
	if len(v) >= stateClassAt+4 {
		class := parseU32(v[stateClassAt:])
		if q := x.queues.ofRaw(class); q.Name != "" {
			q.Jobs++
		}
		x.spaces.count(class, 1)
	}
}

// staged is what a batch knows of the index of one job: as it was, and as it will be when the batch is committed.
type staged struct {
	spot   spot
	open   []OpenRef
	placed bool // spot is new
	opened bool // open is new, and the batch's own
}

// stage is what a batch changes of the index of jobs. A job is looked up many times while one of its runs is claimed or
// completed, so the last one is remembered.
type stage struct {
	jobs map[job.ID]*staged
	slab []staged // where the next ones come from
	last *staged
	id   job.ID // of last

	touched map[string]touch // by namespace
}

// maxSpare bounds what is kept for the next batch: clearing a map costs as much as it has room.
const maxSpare = 1 << 14

// clear makes a stage ready for the next batch.
func (g *stage) clear() {
	if len(g.jobs) > maxSpare {
		g.jobs = nil
	}
	clear(g.jobs)
	clear(g.touched)
	g.last, g.id = nil, 0
}

// staged is a job's part of the index, for looking at and for changing.
func (b *Batch) staged(id job.ID) *staged {
	g := b.stage
	if g.last != nil && g.id == id {
		return g.last
	}
	x := g.jobs[id]
	if x == nil {
		if len(g.slab) == 0 {
			g.slab = make([]staged, 256)
		}
		x, g.slab = &g.slab[0], g.slab[1:]
		x.spot, x.open = b.idx.get(id), b.idx.open[id]
		if g.jobs == nil {
			g.jobs = map[job.ID]*staged{}
		}
		g.jobs[id] = x
	}
	g.last, g.id = x, id
	return x
}

func (b *Batch) spot(id job.ID) spot { return b.staged(id).spot }

func (b *Batch) setSpot(id job.ID, sp spot) {
	x := b.staged(id)
	x.spot, x.placed = sp, true
}

// Open are the open runs of a job, by scheduled time. The slice may change with the batch: a caller that closes or
// opens runs while going over it goes over a copy.
func (b *Batch) Open(id job.ID) []OpenRef { return b.staged(id).open }

// stageOpen keeps a job's list sorted as the runs bucket is. Published lists are shared with views, so the first change
// of a batch copies; those after it are made in place, because a job may have tens of thousands of open runs. A ref
// without status is taken out.
func (b *Batch) stageOpen(k job.RunKey, ref OpenRef) {
	x := b.staged(k.Job)
	gone := ref.Status == job.RunNone
	if !x.opened {
		if x.opened = true; gone && len(x.open) == 1 && x.open[0].At == k.At && x.open[0].Origin == k.Origin {
			x.open = nil
			return
		}
		x.open = append(make([]OpenRef, 0, len(x.open)+1), x.open...)
	}
	refs := x.open
	at, found := slices.BinarySearchFunc(refs, k, func(r OpenRef, k job.RunKey) int {
		return cmp.Or(cmp.Compare(r.At, k.At), cmp.Compare(r.Origin, k.Origin))
	})
	switch {
	case found && !gone:
		refs[at] = ref
	case !gone:
		refs = slices.Insert(refs, at, ref)
	case found && at == 0:
		refs = refs[1:] // oldest first is how runs end
	case found:
		refs = slices.Delete(refs, at, at+1)
	}
	x.open = refs
}

// publishJobs brings memory to where the file is.
func (b *Batch) publishJobs() {
	for id, x := range b.stage.jobs {
		if x.placed {
			b.idx.set(id, x.spot)
		}
		if x.opened {
			b.idx.setOpen(id, x.open)
		}
	}
}

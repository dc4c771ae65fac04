package store

// Activity says when something of a namespace last changed, as the log entries of those batches. It is in memory only,
// for streams of events: who watches one namespace is not to learn from the counters of all what others do.
type Activity struct {
	Runs uint64 // a run came, was claimed or was recorded
	Dead uint64 // a dead letter came or went
}

// touch is what a batch does in a namespace.
type touch uint8

const (
	touchRuns touch = 1 << iota
	touchDead
)

// Activity is that of a namespace. Until something happens in it, it is when the state was read.
func (s *Store) Activity(namespace string) Activity {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.activityOf(namespace)
}

func (x *index) activityOf(namespace string) Activity {
	if a, ok := x.activity[namespace]; ok {
		return a
	}
	return Activity{x.read, x.read}
}

func (b *Batch) touch(namespace string, what touch) {
	g := b.stage
	if g.touched == nil {
		g.touched = map[string]touch{}
	}
	g.touched[namespace] |= what
}

func (b *Batch) publishActivity() {
	for namespace, what := range b.stage.touched {
		a := b.idx.activityOf(namespace)
		if what&touchRuns != 0 {
			a.Runs = b.C.Index
		}
		if what&touchDead != 0 {
			a.Dead = b.C.Index
		}
		if b.idx.activity == nil {
			b.idx.activity = map[string]Activity{}
		}
		b.idx.activity[namespace] = a
	}
}

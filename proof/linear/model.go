// Package linear shows that jobs behave as if there were one copy of them: whatever several clients do with them
// through any node, while nodes die and stand still, there is an order of the calls, each at one moment between its
// beginning and its end, in which every answer is the one that a single map of jobs would have given.
package linear

import (
	"fmt"
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

// Kind is what a call does with the job of a name.
type Kind uint8

// The kinds.
const (
	Create Kind = iota
	Read
	Update
	Pause
	Resume
	Delete
)

func (k Kind) String() string {
	return [...]string{"create", "read", "update", "pause", "resume", "delete"}[k]
}

// Input is a call.
type Input struct {
	Kind    Kind
	Name    string
	Value   string // create, update: what is written
	Version uint64 // update: the version that it replaces
}

// Answer is what a call was told.
type Answer uint8

// The answers.
const (
	Done      Answer = iota
	NotFound         // there is no such job
	Duplicate        // create: there is one already
	Conflict         // update: it has another version
	Unknown          // outcome unknown: it may have happened, at any time from then on
)

func (a Answer) String() string {
	return [...]string{"done", "not found", "duplicate", "conflict", "unknown"}[a]
}

// Output is an answer; of a read with what was read.
type Output struct {
	Answer Answer
	Job    State
}

// State is the job of one name.
type State struct {
	Exists  bool
	Version uint64
	Value   string
	Paused  bool
}

// step is what a single map would do with a call, and what it would answer.
func step(s State, in Input) (State, Answer) {
	if in.Kind == Create {
		if s.Exists {
			return s, Duplicate
		}
		return State{Exists: true, Version: 1, Value: in.Value}, Done
	}
	if !s.Exists {
		return s, NotFound
	}
	switch in.Kind {
	case Update:
		if in.Version != s.Version {
			return s, Conflict
		}
		s.Version, s.Value = s.Version+1, in.Value
	case Pause:
		s.Paused = true
	case Resume:
		s.Paused = false
	case Delete:
		s = State{}
	}
	return s, Done
}

// Model is the specification for porcupine. Each name is a history of its own.
var Model = porcupine.Model{
	Init: func() any { return State{} },
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, o := range all {
			name := o.Input.(Input).Name
			byName[name] = append(byName[name], o)
		}
		names := make([]string, 0, len(byName))
		for n := range byName {
			names = append(names, n)
		}
		sort.Strings(names)
		out := make([][]porcupine.Operation, 0, len(names))
		for _, n := range names {
			out = append(out, byName[n])
		}
		return out
	},
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(State), input.(Input), output.(Output)
		next, answer := step(s, in)
		switch {
		case out.Answer == Unknown:
			// Its end is after all others, so that it has not happened is the same as that it happened last.
			return true, next
		case in.Kind == Update && answer == NotFound && out.Answer == Conflict:
			// The version that it names is no more. Which of the two is said depends on when the update met the delete.
			return true, s
		case answer != out.Answer:
			return false, s
		case in.Kind == Read && answer == Done && out.Job != s:
			return false, s
		}
		return true, next
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(Input), output.(Output)
		return fmt.Sprintf("%s(%s, %q, version %d) -> %s %+v", in.Kind, in.Name, in.Value, in.Version, out.Answer,
			out.Job)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// never is when a call ends that has no answer.
const never = math.MaxInt64

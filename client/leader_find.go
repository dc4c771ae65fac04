package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxHints is how often one call lets nodes send it elsewhere. Nodes whose news is of different age may form a chain; one that is
// longer than this is a mistake.
const maxHints = 3

// answerKind is what a node's answer means for the search. Of those who do not lead, the later ones here have more to say.
type answerKind uint8

const (
	silent    answerKind = iota // no answer, or none that makes sense
	elsewhere                   // it does not lead
	notReady                    // it will lead, or serve, in a moment
	given                       // the search is over
)

type answer struct {
	kind  answerKind
	err   error
	hint  string // the leader, as a node that does not lead sees it
	leads bool   // only a leader can have said this
}

// find asks nodes until one leads, each at most once: the one that answered last, then the one that is named as the leader, then the
// others. The worker's loop spaces out the searches.
func (l *Leader) find(ctx context.Context, m message, take func(data []byte, media string) error) error {
	s := search{todo: l.route(), tried: map[string]answer{}}
	for node := s.next(); node != ""; node = s.next() {
		a := l.ask(ctx, m, node, take)
		if a.kind == given {
			if a.leads {
				l.remember(node)
			}
			return a.err
		}
		err := ctx.Err()
		if errors.Is(err, context.Canceled) { // the worker gave it up: that says nothing about the node
			return err
		}
		l.forget(node, a.kind)
		if err != nil {
			return fmt.Errorf("no answer from carillon at %s: %w", node, err)
		}
		s.note(node, a)
	}
	return s.verdict()
}

// route is the order in which a call asks.
func (l *Leader) route() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := make([]string, 0, len(l.nodes)+1)
	if l.current != "" {
		todo = append(todo, l.current)
	}
	return append(todo, l.nodes...)
}

func (l *Leader) remember(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = node
}

// forget notes that a node does not lead. One that does not even answer is asked last from now on.
func (l *Leader) forget(node string, kind answerKind) {
	if kind == notReady {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == node {
		l.current = ""
	}
	if i := slices.Index(l.nodes, node); i >= 0 && kind == silent {
		l.nodes = append(slices.Delete(l.nodes, i, i+1), node)
	}
}

// search is one call's way through the nodes.
type search struct {
	todo  []string
	tried map[string]answer
	best  answer // the first of those that say the most
	named string // the last node that was named as the leader
	hints int
}

// next is the node to ask, "" if there is none left.
func (s *search) next() string {
	for len(s.todo) > 0 {
		node := s.todo[0]
		s.todo = s.todo[1:]
		if _, again := s.tried[node]; !again {
			return node
		}
	}
	return ""
}

func (s *search) note(node string, a answer) {
	s.tried[node] = a
	if s.best.err == nil || a.kind > s.best.kind {
		s.best = a
	}
	if a.hint == "" || strings.ContainsAny(a.hint, "/@?#") { // host:port and nothing else
		return
	}
	scheme, _, _ := strings.Cut(node, "://")
	base, err := baseURL(scheme + "://" + a.hint)
	if err != nil {
		return
	}
	s.named = base
	if s.hints++; s.hints <= maxHints {
		s.todo = append([]string{base}, s.todo...)
	}
}

// verdict is the error of a search that found no leader. If the others agree on one, what happened there is the answer:
// a worker whose leader cannot be reached for a moment must not think that it has none.
func (s *search) verdict() error {
	if a, ok := s.tried[s.named]; ok && a.kind != elsewhere {
		return a.err
	}
	return s.best.err
}

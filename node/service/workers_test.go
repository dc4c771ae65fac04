package service

import (
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Registrations of one token are bounded, those that are repeated too, and the workers of other tokens go on.
func TestRegistrationsOfAToken(t *testing.T) {
	g, x := newRegistering(), &scheduler.Scheduler{}
	loud, quiet := &api.Identity{Token: "t_1", Name: "loud"}, &api.Identity{Token: "t_2", Name: "quiet"}
	again := &job.Register{Incarnation: 7}
	refused := 0
	for range registerBurst + 2*registerRate {
		err := g.enter(x, loud, again)
		if err == nil {
			if refused > 0 {
				break // what is taken by the second
			}
			continue
		}
		if e := (*job.Error)(nil); !errors.As(err, &e) || e.Code != job.CodeTooManyRequests {
			t.Fatal(err)
		}
		refused++
	}
	if refused == 0 {
		t.Fatal("all registrations of one token were taken")
	}
	if err := g.enter(x, quiet, again); err != nil {
		t.Fatal("another token is refused: ", err)
	}
}

// Each process takes one of the numbers that there are under a leadership; the next leadership has new ones.
func TestProcessesOfAToken(t *testing.T) {
	g, x := newRegistering(), &scheduler.Scheduler{}
	g.with, g.processes = x, map[string]int{"t_1": maxTokenProcesses}
	id, first := &api.Identity{Token: "t_1", Name: "loud"}, &job.Register{}
	err := g.enter(x, id, first)
	if e := (*job.Error)(nil); !errors.As(err, &e) || e.Code != job.CodeUnavailable {
		t.Fatal(err)
	}
	if err := g.enter(x, id, &job.Register{Incarnation: 7}); err != nil {
		t.Fatal("a process that has its number is refused: ", err)
	}
	if err := g.enter(x, &api.Identity{Token: "t_2"}, first); err != nil {
		t.Fatal("another token is refused: ", err)
	}
	if err := g.enter(&scheduler.Scheduler{}, id, first); err != nil {
		t.Fatal("the next leadership refuses: ", err)
	}
}

//go:build unix

package executor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A command that is named relative to a directory is found there, whatever the home directory is.
func TestQueueCommandRunsInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "send"), []byte("#!/bin/sh\ncat; echo $CARILLON_QUEUE\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := NewShell(ShellOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	payload, err := json.Marshal(job.QueuePayload{Queue: "mail", Data: []byte(`{"to":"ada"}`)})
	if err != nil {
		t.Fatal(err)
	}
	q := &Queue{Shell: s, Command: "./send", Dir: dir}
	r := q.Run(within(t, time.Minute), job.Assignment{Payload: payload})
	if r.Outcome != job.OutcomeSucceeded || r.Output != "{\"to\":\"ada\"}\nmail\n" {
		t.Errorf("%+v", r)
	}
}

package apitest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker in Go whose token is revoked stops what it does and ends with that reason; it used to ask for ever.
func TestPullWorkerWithARevokedToken(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "mailer", Role: job.RoleWorker})
	spec := job.Spec{Name: "q", Type: job.TypeQueue, Schedule: "@manual", Payload: []byte(`{"queue":"mail"}`)}
	if _, _, err := n.Backend.CreateJob(t.Context(), spec, api.Request{Key: "create"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backend.RunJob(t.Context(), "q", api.Request{Key: "run"}); err != nil {
		t.Fatal(err)
	}
	began, stopped := make(chan struct{}), make(chan struct{})
	w := client.Worker{Addrs: []string{n.Addr()}, Queue: "mail", Token: token, Name: "p", Concurrency: 2,
		Handler: func(ctx context.Context, _ *client.Run) error {
			close(began)
			<-ctx.Done()
			close(stopped)
			return ctx.Err()
		}}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	<-began
	if _, err := n.Backend.RevokeToken(t.Context(), "mailer", api.Request{Key: "revoke"}); err != nil {
		t.Fatal(err)
	}
	var err error
	select {
	case err = <-done:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if job.CodeOf(err) != job.CodeUnauthenticated || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("%v", err)
	}
	<-stopped
}

package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/schedule"
)

// Preview computes fire times of an expression that is not saved yet.
func (c *Client) Preview(ctx context.Context, p PreviewRequest) (r PreviewResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/schedule:preview", body: p, out: &r, need: "times"})
	return r, err
}

func calendarPath(name string) string { return prefix + "/calendars/" + url.PathEscape(name) }

// Calendars reads all blackout calendars.
func (c *Client) Calendars(ctx context.Context) ([]schedule.Calendar, error) {
	var l CalendarList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/calendars", out: &l, need: "calendars"})
	return l.Calendars, err
}

// GetCalendar reads one blackout calendar.
func (c *Client) GetCalendar(ctx context.Context, name string) (cal schedule.Calendar, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: calendarPath(name), out: &cal, need: "name"})
	return cal, err
}

// PutCalendar creates or replaces a blackout calendar.
func (c *Client) PutCalendar(ctx context.Context, cal schedule.Calendar) (out schedule.Calendar, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: calendarPath(cal.Name), body: cal, out: &out, need: "name"})
	return out, err
}

// DeleteCalendar removes a blackout calendar.
func (c *Client) DeleteCalendar(ctx context.Context, name string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: calendarPath(name)})
}

// ClockReset lowers the clock mark to the leader's clock after a clock that ran ahead was put right.
func (c *Client) ClockReset(ctx context.Context) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:clock-reset"})
}

// Status reads what the node knows of itself and its cluster.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/status", out: &s, need: "node"})
	return s, err
}

// OpenAPI reads the description of the API.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	return c.fetch(ctx, prefix+"/openapi.json")
}

// Metrics reads the node's metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.fetch(ctx, "/metrics") }

func (c *Client) fetch(ctx context.Context, path string) (data []byte, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: path, stream: func(r io.Reader) error {
		var err error
		if data, err = io.ReadAll(r); err != nil {
			return readError{err}
		}
		return nil
	}})
	return data, err
}

// Live says whether the node's process is well. It is asked once: a probe that retries hides what it looks for.
func (c *Client) Live(ctx context.Context) error { return c.probe(ctx, "/healthz") }

// Ready says whether the node should get traffic.
func (c *Client) Ready(ctx context.Context) error { return c.probe(ctx, "/readyz") }

func (c *Client) probe(ctx context.Context, path string) error {
	one := *c
	one.attempts = 1
	return one.do(ctx, request{method: http.MethodGet, path: path})
}

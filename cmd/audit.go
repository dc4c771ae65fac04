package cmd

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exporter"
	"github.com/carillon-scheduler/carillon/cmd/values"
)

func (a *app) auditCmd() *cobra.Command {
	var q client.AuditQuery
	c := &cobra.Command{
		Use: "audit", Short: "List who changed what, newest first", Args: cobra.NoArgs,
		Long: "List what was changed through the API and the admin sockets, in one namespace. Unless you name a " +
			"namespace, the list also has what belongs to none, such as members and tokens for all namespaces.",
		Example: "  carillon audit -A --action token --since 2026-11-01T00:00:00Z\n" +
			"  carillon audit --object nightly -n team-a",
	}
	filters := a.auditFilters(c, &q)
	part := pages(c, &q.Limit, 50, &q.Cursor)
	after := exporter.After(c.Flags(), "only records with a higher number")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := filters(); err != nil {
			return err
		}
		if q.After, err = after(); err != nil {
			return err
		}
		return askPages(a, cmd, part, func(c *client.Client, ctx context.Context) (client.AuditPage, error) {
			return c.Audit(ctx, q)
		}, (*printer).Audit)
	}
	c.AddCommand(a.auditExportCmd())
	return a.watched(a.listsAll(c))
}

// auditFilters gives a command the flags that select records.
func (a *app) auditFilters(c *cobra.Command, q *client.AuditQuery) func() error {
	var since, until string
	fl := c.Flags()
	fl.StringVar(&q.Action, "action", "", "such as job.create, or job for everything done to jobs")
	fl.StringVar(&q.Object, "object", "", "id or name of the object that was changed")
	fl.StringVar(&q.Token, "token", "", "id or name of the token that was used")
	fl.StringVar(&since, "since", "", "from this time on")
	fl.StringVar(&until, "until", "", "before this time")
	return func() error {
		return a.instants(time.Local, values.Before, timeFlag{"--since", since, &q.Since},
			timeFlag{"--until", until, &q.Until})
	}
}

func (a *app) auditExportCmd() *cobra.Command {
	var q client.AuditQuery
	c := &cobra.Command{
		Use: "export", Short: "Print the records as JSON lines, oldest first", Args: cobra.NoArgs,
		Long:    "Print every record as one line of JSON. " + exporter.Help,
		Example: "  carillon audit export -A --after-file audit.ndjson >> audit.ndjson",
	}
	filters := a.auditFilters(c, &q)
	var from exporter.From
	from.Register(c.Flags())
	c.Flags().IntVar(&q.Limit, "limit", 0, "how many at most (default all)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := filters(); err != nil {
			return err
		}
		return from.Lines(cmd, func(after client.Seqs, line func(uint64, json.RawMessage) error) error {
			q.After = after
			return a.client().ExportAudit(cmd.Context(), q, func(r client.AuditRecord, raw json.RawMessage) error {
				return line(r.Seq, raw)
			})
		})
	}
	return a.listsAll(c)
}

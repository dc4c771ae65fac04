package cmd

import (
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

// recoverResult is what --json prints.
type recoverResult struct {
	NodeID string   `json:"node_id"`
	Alone  bool     `json:"alone"`
	Lost   []string `json:"lost"`
	Epoch  uint64   `json:"epoch"`
	Index  uint64   `json:"index"`
	Unsure uint64   `json:"unsure_entries"`
}

func (a *app) recoverCmd() *cobra.Command {
	var dir string
	var peers []string
	var skip uint64
	c := &cobra.Command{
		Use: "recover", Short: "Bring back a cluster whose members cannot find each other, or that lost its majority",
		Args: cobra.NoArgs,
		Long: `The node must not be running.

With all members in --peers it only notes where they are now: for a cluster whose addresses changed, not under the same names, for a majority
at once. Run it with the same --peers on each node, then start them. Nothing can be lost by it.

With this node alone in --peers it begins again without the others: for a cluster that lost its majority for good. What only the others had
is lost; entries that this node has and that may not have been committed become true. Choose the node that is furthest (index), and
let the others join with empty data directories: they are refused otherwise.

With --skip it has the node pass over one entry of its log, from its next start on: for an entry that cannot be applied, at which every node
stops. What the entry would have changed is lost. Stop all nodes and run it on every one, or their states will differ; it is said in the log
at every start and shows in the status for as long as the data directory lives.`,
		Example: "  carillon cluster recover --data-dir /var/lib/carillon --peers n1=10.0.1.1:7400,n2=10.0.1.2:7400,n3=10.0.1.3:7400\n" +
			"  carillon cluster recover --data-dir /var/lib/carillon --peers n1=10.0.1.1:7400\n" +
			"  carillon cluster recover --data-dir /var/lib/carillon --skip 81204",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return job.Invalid("--data-dir", "give the directory of a node that is not running", "which data directory?")
			}
			if cmd.Flags().Changed("skip") {
				if len(peers) > 0 {
					return job.Invalid("--skip", "run it once with each", "--skip and --peers exclude each other")
				}
				return a.skipEntry(cmd, dir, skip)
			}
			list, err := pairs("--peers", peers)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return job.Invalid("--peers", "use id=host:port for all members, or for this node alone; --skip needs none",
					"which nodes?")
			}
			r, err := recovers(dir, list, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			if a.json {
				out, err := json.Marshal(recoverResult{r.NodeID, r.Alone, append([]string{}, r.Lost...), r.Epoch, r.Index,
					r.Unsure})
				if err != nil {
					return err
				}
				return printRaw(cmd.OutOrStdout(), out)
			}
			p := a.printer(cmd)
			if !r.Alone {
				p.printf("%s looks for the members at these addresses; run the same on the other nodes, then start them\n",
					r.NodeID)
				return p.err
			}
			p.printf("%s is a cluster of one, at entry %d, epoch %d; start it\n", r.NodeID, r.Index, r.Epoch)
			if r.Unsure > 0 {
				p.printf("%d log entries were taken over that may not have been committed\n", r.Unsure)
			}
			if len(r.Lost) > 0 {
				p.printf("%s: empty the data directory and start with --join\n", strings.Join(r.Lost, ", "))
			}
			return p.err
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	c.Flags().Uint64Var(&skip, "skip", 0, "index of a log entry that cannot be applied, to pass over")
	c.Flags().StringSliceVar(&peers, "peers", nil, "id=host:port of all members, or of this node alone")
	return c
}

// skipResult is what --json prints.
type skipResult struct {
	NodeID string      `json:"node_id"`
	Index  uint64      `json:"index"`
	Term   uint64      `json:"term"`
	At     job.Instant `json:"at"`
	Entry  string      `json:"entry"`
}

// skipEntry has a node that is not running pass over an entry of its log.
func (a *app) skipEntry(cmd *cobra.Command, dir string, index uint64) error {
	if index == 0 {
		return job.Invalid("--skip", "take the index from the message with which the node stopped",
			"entries are counted from 1")
	}
	r, err := skips(dir, index, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	if a.json {
		out, err := json.Marshal(skipResult{r.NodeID, r.Index, r.Term, r.At, r.What})
		if err != nil {
			return err
		}
		return printRaw(cmd.OutOrStdout(), out)
	}
	p := a.printer(cmd)
	p.printf("%s passes over entry %d of term %d (%s)\n", r.NodeID, r.Index, r.Term, r.What)
	p.printf("run the same on every other node, then start them\n")
	return p.err
}

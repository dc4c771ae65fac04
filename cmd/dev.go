package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) devCmd() *cobra.Command {
	cfg := ServerConfig{NodeID: "dev", Bootstrap: true, Executors: knownExecutors, Slots: 64, Dev: true, LogFormat: "text",
		HistoryMaxAge: 7 * 24 * time.Hour, HistoryMaxCount: 1_000_000}
	c := &cobra.Command{
		Use: "dev", Short: "Run one node to play with: nothing to configure", Args: cobra.NoArgs,
		Long: "Run one node on the loopback interface with every executor on, shell too. Without --data-dir its state is in a temporary directory that is removed at the end.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			temporary := cfg.DataDir == ""
			if temporary {
				if cfg.DataDir, err = os.MkdirTemp("", "carillon-dev-"); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, os.RemoveAll(cfg.DataDir)) }()
			}
			if err := cfg.validate(); err != nil {
				return err
			}
			return runNode(cmd, cfg, func(addr string) { devWelcome(cmd.OutOrStdout(), addr, cfg.DataDir, temporary) })
		},
	}
	c.Flags().StringVar(&cfg.Listen, "listen", client.DefaultAddr, "host:port; shell jobs run for whoever reaches it")
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "directory of its state (default a temporary one)")
	c.Flags().StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	c.Flags().BoolVar(&cfg.Pprof, "pprof", false, "serve /debug/pprof/")
	return c
}

// devWelcome says what to try next, ready to be pasted.
func devWelcome(w io.Writer, addr, dir string, temporary bool) {
	flag := ""
	if addr != client.DefaultAddr {
		flag = " --addr " + addr
	}
	kept := "kept"
	if temporary {
		kept = "temporary: removed at the end; --data-dir keeps it"
	}
	fmt.Fprintf(w, `carillon dev serves on http://%s
data in %s (%s)

Try, in another terminal:

  carillon submit%s --name hello --schedule '@every 2s' --shell 'echo hello from $CARILLON_RUN'
  carillon runs%s hello
  carillon status%s

Ctrl-C ends it.
`, addr, dir, kept, flag, flag, flag)
}

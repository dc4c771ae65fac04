package cmd

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/settings"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) configCmd() *cobra.Command {
	return group("config", "Show the settings that a node or worker would start with", a.configShowCmd())
}

func (a *app) configShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show server|worker|dev [FLAGS]", Short: "Print every setting, its value and where it comes from",
		Long: `Print the settings that the command would use if you started it here and now with these flags. Flags take precedence
over the environment (CARILLON_NODE_ID for --node-id, CARILLON_BROKER_FILE for a file with the value of --broker), and
the environment over the file of --config. Secrets are not shown.`,
		Example:            "  carillon config show server --config /etc/carillon/server.yaml",
		Args:               cobra.MinimumNArgs(1),
		DisableFlagParsing: true, // they are those of the other command
		RunE: func(cmd *cobra.Command, args []string) error {
			for len(args) > 1 && args[0] == "--json" { // flags before the name are not parsed either
				args = append(args[1:], args[0])
			}
			if args[0] == "--help" || args[0] == "-h" {
				return cmd.Help()
			}
			target, _, err := cmd.Root().Find(args[:1])
			if err != nil || target.Flags().Lookup("config") == nil {
				return usage("name server, worker or dev", "%q has no settings", args[0])
			}
			switch err := target.ParseFlags(args[1:]); {
			case errors.Is(err, pflag.ErrHelp):
				return cmd.Help()
			case err != nil:
				return job.Errorf(job.CodeInvalid, "`carillon "+target.Name()+" --help` lists the flags", "%v", err)
			}
			if err := a.form.Settle(cmd); err != nil {
				return err
			}
			all, err := settings.Fill(target, a.env)
			if err != nil {
				return err
			}
			return a.result(cmd, map[string]any{"settings": all}, func(p *printer) {
				var t output.Table
				t.Row("SETTING", "VALUE", "FROM")
				for _, s := range all {
					value := cmp.Or(s.Means, strings.TrimSuffix(strings.TrimPrefix(s.Value, "["), "]"))
					t.Row(s.Name, output.Dash(value), s.From)
				}
				p.Table(t)
			})
		},
	}
}

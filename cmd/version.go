package cmd

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is set by the linker for releases: -ldflags "-X
// github.com/carillon-scheduler/carillon/cmd.buildVersion=v1.2.3".
var buildVersion string

type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version() versionInfo {
	v := versionInfo{Version: buildVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Date = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "dev"
	}
	return v
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version of this binary", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showVersion(cmd) }}
}

func (a *app) showVersion(cmd *cobra.Command) error {
	v := version()
	return a.result(cmd, v, func(p *printer) {
		commit := v.Commit
		if commit != "" {
			commit = " (" + commit[:min(12, len(commit))] + ")"
		}
		p.Printf("carillon %s%s %s %s\n", v.Version, commit, v.Go, v.Platform)
	})
}

// Package contexts has the commands about contexts: the clusters that `carillon login` keeps.
package contexts

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/job"
)

// App is what the commands know of the process.
type App struct {
	Env    func(string) string
	Name   func() string // the context that --context or the environment names
	Result func(cmd *cobra.Command, v any, human func(*output.Printer)) error
}

// view is a context without its secrets.
type view struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	Addr      string `json:"addr"`
	CA        string `json:"ca,omitempty"`
	CAFile    string `json:"ca_file,omitempty"`
	Token     bool   `json:"token"` // there is one
	TokenFile string `json:"token_file,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

func (a *App) view(all login.Config, name string) view {
	c := all.Contexts[name]
	return view{Name: name, Current: name == cmp.Or(a.Name(), all.Current), Addr: c.Addr, CA: c.CA, CAFile: c.CAFile,
		Token: c.Token != "", TokenFile: c.TokenFile, Namespace: c.Namespace}
}

// token says whether a context has one, and not which.
func (v view) token() string {
	switch {
	case v.Token:
		return "kept"
	case v.TokenFile != "":
		return v.TokenFile
	}
	return "none"
}

// Cmd is `carillon context`.
func Cmd(app App) *cobra.Command {
	a := &app
	c := a.listCmd("context", "List the saved contexts, and choose one")
	c.Aliases = []string{"contexts", "ctx"}
	c.Long = "A context is how commands reach a cluster: addresses, CA, token and namespace. `carillon login` makes " +
		"one. Flags, including --context, take precedence over the environment, and the environment over the " +
		"current context."
	c.Example = "  carillon context\n  carillon context use staging\n  carillon --context staging jobs"
	list := a.listCmd("list", "List the contexts")
	list.Aliases = []string{"ls"}
	remove := a.about("remove NAME", "Delete a context and its token", cobra.ExactArgs(1), a.remove)
	remove.Aliases = []string{"rm", "delete"}
	c.AddCommand(list, a.about("use NAME", "Make a context the current one", cobra.ExactArgs(1), a.use),
		a.about("show [NAME]", "Show a context, without its token", cobra.MaximumNArgs(1), a.show), remove)
	return c
}

// Logout is `carillon logout`.
func Logout(app App) *cobra.Command {
	a := &app
	return &cobra.Command{Use: "logout", Args: cobra.NoArgs,
		Short: "Delete the token of a context; keep its address",
		Long: "Delete the stored token of the current context, or of the one that --context names. The token itself " +
			"stays valid until `carillon token revoke`.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.logout(cmd) }}
}

func (a *App) listCmd(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.list(cmd) }}
}

// about is a command about one context.
func (a *App) about(use, short string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, all login.Config, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := login.Read(a.Env)
			if err != nil {
				return err
			}
			return run(cmd, all, args)
		}}
}

// Names are those of the contexts that there are; what is wrong with them is said when one is used.
func Names(env func(string) string) []string {
	all, err := login.Read(env)
	if err != nil {
		return nil
	}
	return all.Names()
}

func (a *App) complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return Names(a.Env), cobra.ShellCompDirectiveNoFileComp
}

// list is all contexts.
type list struct {
	Contexts []view `json:"contexts"`
}

// Names are what -o name prints.
func (l list) Names() (out []string) {
	for _, v := range l.Contexts {
		out = append(out, v.Name)
	}
	return out
}

// Names are what -o name prints.
func (v view) Names() []string { return []string{v.Name} }

func (a *App) list(cmd *cobra.Command) error {
	all, err := login.Read(a.Env)
	if err != nil {
		return err
	}
	views := []view{} // never null
	for _, name := range all.Names() {
		views = append(views, a.view(all, name))
	}
	return a.Result(cmd, list{views}, func(p *output.Printer) {
		if len(views) == 0 {
			p.Printf("no contexts; %s login ADDR makes one\n", output.Program())
			return
		}
		var t output.Table
		t.Row("", "NAME", "ADDRESS", "NAMESPACE", "TOKEN")
		for _, v := range views {
			mark := ""
			if v.Current {
				mark = "*"
			}
			t.Row(mark, v.Name, output.Dash(v.Addr), output.Dash(v.Namespace), v.token())
		}
		p.Table(t)
	})
}

func (a *App) use(cmd *cobra.Command, all login.Config, args []string) error {
	if _, err := all.Get(args[0]); err != nil {
		return err
	}
	all.Current = args[0]
	if err := all.Write(login.File(a.Env)); err != nil {
		return err
	}
	return a.Result(cmd, a.view(all, args[0]), func(p *output.Printer) {
		p.Printf("the context is %s now, %s\n", args[0], all.Contexts[args[0]].Addr)
		if name := a.Env(login.EnvName); name != "" && name != args[0] {
			p.Printf("but %s is set to %s in this shell and takes precedence\n", login.EnvName, name)
		}
	})
}

func (a *App) show(cmd *cobra.Command, all login.Config, args []string) error {
	name := cmp.Or(a.Name(), all.Current)
	if len(args) > 0 {
		name = args[0]
	}
	if name == "" {
		return job.Errorf(job.CodeNotFound, "`carillon login ADDR` makes one; `carillon context` lists them",
			"there is no current context")
	}
	if _, err := all.Get(name); err != nil {
		return err
	}
	v := a.view(all, name)
	return a.Result(cmd, v, func(p *output.Printer) {
		current := "no"
		if v.Current {
			current = "yes"
		}
		p.Fields("name", v.Name, "current", current, "address", v.Addr, "namespace", v.Namespace, "CA", v.CA,
			"CA file", v.CAFile, "token", v.token(), "file", login.File(a.Env))
	})
}

func (a *App) remove(cmd *cobra.Command, all login.Config, args []string) error {
	if _, err := all.Get(args[0]); err != nil {
		return err
	}
	v := a.view(all, args[0])
	delete(all.Contexts, args[0])
	was := all.Current == args[0]
	if was {
		all.Current = ""
	}
	if err := all.Write(login.File(a.Env)); err != nil {
		return err
	}
	return a.Result(cmd, v, func(p *output.Printer) {
		p.Printf("removed %s\n", args[0])
		if was {
			p.Printf("there is no current context now: commands go to %s. %s context use NAME chooses one\n",
				client.DefaultAddr, output.Program())
		}
	})
}

func (a *App) logout(cmd *cobra.Command) error {
	all, err := login.Read(a.Env)
	if err != nil {
		return err
	}
	name := cmp.Or(a.Name(), all.Current)
	if name == "" {
		return a.Result(cmd, map[string]any{}, func(p *output.Printer) { p.Printf("there is no context\n") })
	}
	kept, err := all.Get(name)
	if err != nil {
		return err
	}
	had := kept.Token != "" || kept.TokenFile != ""
	kept.Token, kept.TokenFile = "", ""
	all.Contexts[name] = kept
	if err := all.Write(login.File(a.Env)); err != nil {
		return err
	}
	return a.Result(cmd, a.view(all, name), func(p *output.Printer) {
		if !had {
			p.Printf("context %s has no token\n", name)
			return
		}
		p.Printf("the token of context %s is deleted here; it stays valid until it expires or is revoked\n", name)
	})
}

//go:build unix

package executor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func init() {
	Register(Kind{
		Kind: job.Kind{Type: job.TypeShell, Check: job.CheckShell, Schema: shellSchema,
			Secrets: map[string]job.SecretPlace{"env": job.SecretInText}},
		Node: true,
		Submit: []Choice{{
			Flag: Flag{Name: "shell", Help: "run this script with /bin/sh"},
			With: []Flag{
				{Name: "env", Form: List, Help: "environment variable k=v of a shell job; repeatable"},
				{Name: "dir", Help: "working directory of a shell job"},
				{Name: "user", Help: "user that a shell job runs as, where the node allows it"},
				{Name: "limit", Form: List,
					Help: "limit k=v of a shell job: memory, processes, cpu, open_files or file_size; repeatable"},
			},
			Payload: shellPayload,
		}},
		New: func(t *Tools, o ToolsOptions) (Runner, error) { return t.commands(o) },
	})
}

func shellPayload(in Input) (any, error) {
	env, err := in.Pairs("env")
	if err != nil {
		return nil, err
	}
	p := job.ShellPayload{Command: in.Text("shell"), Dir: in.Text("dir"), User: in.Text("user"), Env: env}
	limits, err := in.Pairs("limit")
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(limits)) {
		if err := setLimit(&p.Limits, k, limits[k]); err != nil {
			return nil, job.Invalid("--limit",
				"use memory=512MiB, processes=64, cpu=30s, open_files=256 or file_size=1GiB",
				"%s=%s: %v", k, limits[k], err)
		}
	}
	return p, nil
}

func setLimit(l *job.ShellLimits, name, value string) (err error) {
	switch name {
	case "memory":
		err = l.Memory.Set(value)
	case "file_size":
		err = l.FileSize.Set(value)
	case "cpu":
		d, bad := time.ParseDuration(value)
		if l.CPU = job.Duration(d); bad != nil {
			err = fmt.Errorf("%q is not a duration", value)
		}
	case "processes":
		l.Processes, err = strconv.Atoi(value)
	case "open_files":
		l.OpenFiles, err = strconv.Atoi(value)
	default:
		err = errors.New("there is no such limit")
	}
	return err
}

const shellSchema = `{
 "title": "ShellPayload",
 "type": "object",
 "description": "Payload of a shell job: command or argv.",
 "properties": {
  "command": {"type": "string", "description": "A script for /bin/sh."},
  "argv": {"type": "array", "items": {"type": "string"}, "description": "A program and its arguments; no shell touches them."},
  "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Added to the environment."},
  "dir": {"type": "string", "description": "Working directory, absolute."},
  "user": {"type": "string", "description": "User that it runs as, where the worker allows it."},
  "limits": {
   "type": "object",
   "description": "What an attempt may use, at most as much as its worker allows.",
   "properties": {
    "memory": {"type": ["string", "integer"], "description": "Such as 512MiB, or a number of bytes."},
    "processes": {"type": "integer", "description": "How many processes."},
    "cpu": {"type": "string", "description": "CPU time of one process."},
    "open_files": {"type": "integer", "description": "Open files of one process."},
    "file_size": {"type": ["string", "integer"], "description": "Largest file it may write."}
   },
   "additionalProperties": false
  }
 },
 "additionalProperties": false
}`

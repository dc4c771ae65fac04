package cmd

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// payload is what the job does, from the flags that say so. A flag that does not belong to that kind of job is refused:
// it would otherwise be dropped in silence.
func (f *submitFlags) payload() (job.Type, json.RawMessage, error) {
	kinds := []struct {
		kind  string
		given bool
		with  []string
		make  func() (job.Type, any, error)
	}{
		{"http", f.http != "", []string{"--method", "--header", "--body", "--expect-status"}, f.httpPayload},
		{"shell", f.shell != "", []string{"--env", "--dir", "--user", "--limit"}, f.shellPayload},
		{"queue", f.queue != "", []string{"--data"}, f.queuePayload},
		{"nats", f.nats != "", []string{"--broker", "--header", "--data", "--jetstream"}, f.messagePayload},
		{"kafka", f.kafka != "", []string{"--broker", "--header", "--data", "--key"}, f.messagePayload},
	}
	chosen, n := 0, 0
	for i, k := range kinds {
		if k.given {
			chosen = i
			n++
		}
	}
	if n != 1 {
		return "", nil, usage("give one of --http, --shell, --queue, --nats and --kafka, or a file", "%s",
			map[bool]string{true: "the job has nothing to do", false: "the job has several things to do"}[n == 0])
	}
	k := kinds[chosen]
	for _, g := range []struct {
		flag  string
		given bool
	}{
		{"--method", f.method != ""}, {"--header", f.header != nil}, {"--body", f.body != ""},
		{"--expect-status", f.expect != ""},
		{"--env", f.env != nil}, {"--dir", f.dir != ""}, {"--user", f.user != ""}, {"--limit", f.limit != nil},
		{"--data", f.data != ""},
		{"--broker", f.broker != ""}, {"--jetstream", f.jetstream}, {"--key", f.key != ""},
	} {
		if g.given && !slices.Contains(k.with, g.flag) {
			return "", nil, usage("leave it out", "this flag is not for a %s job: %s", k.kind, g.flag)
		}
	}
	t, p, err := k.make()
	if err != nil {
		return t, nil, err
	}
	raw, err := compactJSON(p)
	return t, raw, err
}

func (f *submitFlags) httpPayload() (job.Type, any, error) {
	p := job.HTTPPayload{URL: f.http, Method: strings.ToUpper(f.method)}
	var err error
	if p.Headers, err = headers(f.header); err != nil {
		return job.TypeHTTP, nil, err
	}
	if p.Body, err = value("--body", f.body); err != nil {
		return job.TypeHTTP, nil, err
	}
	if f.expect != "" {
		list, _ := json.Marshal(strings.Split(f.expect, ","))
		if err := json.Unmarshal(list, &p.ExpectStatus); err != nil {
			return job.TypeHTTP, nil, job.Invalid("--expect-status", "", "%v", err)
		}
	}
	return job.TypeHTTP, p, nil
}

func (f *submitFlags) shellPayload() (job.Type, any, error) {
	env, err := pairs("--env", f.env)
	if err != nil {
		return job.TypeShell, nil, err
	}
	p := job.ShellPayload{Command: f.shell, Dir: f.dir, User: f.user, Env: env}
	limits, err := pairs("--limit", f.limit)
	if err != nil {
		return job.TypeShell, nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(limits)) {
		v := limits[k]
		switch k {
		case "memory":
			err = p.Limits.Memory.Set(v)
		case "file_size":
			err = p.Limits.FileSize.Set(v)
		case "cpu":
			p.Limits.CPU, err = duration("--limit", v)
		case "processes":
			p.Limits.Processes, err = strconv.Atoi(v)
		case "open_files":
			p.Limits.OpenFiles, err = strconv.Atoi(v)
		default:
			err = errors.New("there is no such limit")
		}
		if err != nil {
			return job.TypeShell, nil,
				job.Invalid("--limit", "use memory=512MiB, processes=64, cpu=30s, open_files=256 or file_size=1GiB", "%s=%s: %v",
					k, v, err)
		}
	}
	return job.TypeShell, p, nil
}

func (f *submitFlags) queuePayload() (job.Type, any, error) {
	data, err := value("--data", f.data)
	return job.TypeQueue, job.QueuePayload{Queue: f.queue, Data: data}, err
}

func (f *submitFlags) messagePayload() (job.Type, any, error) {
	if f.broker == "" {
		return job.TypeMessage, nil,
			usage("give --broker: a name that the nodes know, nats://HOST:4222 or kafka://HOST:9092",
				"the message has no broker to go to")
	}
	p := job.MessagePayload{Broker: f.broker, Subject: f.nats, JetStream: f.jetstream, Topic: f.kafka, Key: f.key}
	var err error
	if p.Headers, err = headers(f.header); err != nil {
		return job.TypeMessage, nil, err
	}
	p.Data, err = value("--data", f.data)
	return job.TypeMessage, p, err
}

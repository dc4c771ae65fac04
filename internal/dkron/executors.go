package dkron

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

func (c *conversion) executor() error {
	config := c.from.ExecutorConfig
	switch c.from.Executor {
	case "shell":
		return c.shell(config)
	case "http":
		return c.http(config)
	case "nats":
		u, err := url.Parse(config["url"])
		if err != nil || u.Host == "" {
			return fmt.Errorf("the URL of its broker cannot be read")
		}
		if config["userName"] != "" || config["password"] != "" || u.User != nil {
			return fmt.Errorf("its broker has a password: give the workers --broker NAME=URL and write a message job " +
				"with broker: NAME")
		}
		scheme := "nats"
		if u.Scheme == "tls" {
			scheme = "nats+tls"
		}
		p := job.MessagePayload{Broker: scheme + "://" + u.Host, Subject: config["subject"]}
		return c.message(p, config["message"])
	case "kafka":
		if config["tlsEnable"] == "true" || config["saslUsername"] != "" {
			return fmt.Errorf("its broker has TLS or a password: give the workers --broker NAME=URL and write a " +
				"message job with broker: NAME")
		}
		return c.message(job.MessagePayload{Broker: "kafka://" + config["brokerAddress"], Topic: config["topic"],
			Key: config["key"]}, config["message"])
	case "":
		return fmt.Errorf("it has no executor")
	}
	return fmt.Errorf("the executor %s has no equivalent: http, shell, nats and kafka can be converted",
		c.from.Executor)
}

func (c *conversion) payload(t job.Type, p any) (err error) {
	c.Spec.Type = t
	c.Spec.Payload, err = jsontext.Marshal(p)
	return err
}

func (c *conversion) message(p job.MessagePayload, text string) error {
	data, err := json.Marshal(text)
	if err != nil {
		return err
	}
	p.Data = data
	return c.payload(job.TypeMessage, p)
}

// metacharacters mean something to a shell.
const metacharacters = "$`*?[]{}()<>|&;~#!\n"

func (c *conversion) shell(config map[string]string) error {
	command := strings.TrimSpace(config["command"])
	p := job.ShellPayload{Dir: config["cwd"]}
	shell, _ := strconv.ParseBool(config["shell"]) // anything else is no
	quoted := strings.ContainsAny(command, `'"\`)
	switch special := strings.ContainsAny(command, metacharacters); {
	case command == "":
		return fmt.Errorf("it has no command")
	case shell, !special:
		p.Command = command // words and quotes are the same to a shell
	case quoted:
		return fmt.Errorf("its command has quotes and characters that a shell would interpret: write it as argv")
	default:
		p.Argv = strings.Fields(command)
	}
	if config["payload"] != "" {
		input, err := base64.StdEncoding.DecodeString(config["payload"])
		if err != nil || len(input) > 0 {
			return fmt.Errorf("its payload is the input of the command: put it into the command")
		}
	}
	for pair := range strings.SplitSeq(config["env"], ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if p.Env == nil {
				p.Env = map[string]string{}
			}
			p.Env[name] = value
		}
	}
	p.User, _, _ = strings.Cut(config["su"], ":")
	if limit := config["mem_limit"]; limit != "" {
		// Dkron counts 1024 to a KB.
		size, err := job.ParseSize(strings.NewReplacer("KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB").Replace(
			strings.ToUpper(limit)))
		if err != nil {
			return fmt.Errorf("mem_limit: %w", err)
		}
		p.Limits.Memory = size
	}
	c.Spec.Timeout = job.Duration(24 * time.Hour)
	if text := config["timeout"]; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("timeout: %q is not a duration", text)
		}
		if d > 0 {
			c.Spec.Timeout = job.Duration(d)
		}
	}
	return c.payload(job.TypeShell, p)
}

// defaultSeconds is Dkron's limit of an HTTP call.
const defaultSeconds = 30

func (c *conversion) http(config map[string]string) error {
	p := job.HTTPPayload{URL: config["url"], Method: config["method"]}
	if config["headers"] != "" {
		var list []string
		if err := json.Unmarshal([]byte(config["headers"]), &list); err != nil {
			return fmt.Errorf("its headers are not a list")
		}
		for _, h := range list {
			if name, value, ok := strings.Cut(h, ":"); ok {
				if p.Headers == nil {
					p.Headers = map[string]string{}
				}
				p.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
	}
	if body := config["body"]; body != "" {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		p.Body = raw
	}
	if err := c.expected(&p, config); err != nil {
		return err
	}
	p.InsecureSkipVerify, _ = strconv.ParseBool(config["tlsNoVerifyPeer"])
	for _, k := range []string{"tlsRootCAsFile", "tlsCertificateFile", "tlsCertificateKeyFile"} {
		if config[k] != "" {
			return fmt.Errorf("%s has no equivalent: the workers use their own certificates", k)
		}
	}
	p.RetryClientErrors = c.from.Retries > 0
	seconds, err := strconv.Atoi(cmp.Or(config["timeout"], strconv.Itoa(defaultSeconds)))
	if err != nil || seconds <= 0 {
		seconds = defaultSeconds
	}
	c.Spec.Timeout = job.Duration(time.Duration(seconds) * time.Second)
	return c.payload(job.TypeHTTP, p)
}

// expected is what means success: Dkron takes any status for one, unless the job says which.
func (c *conversion) expected(p *job.HTTPPayload, config map[string]string) error {
	if config["expectBody"] != "" {
		c.note("expectBody is left out: only the status of the response counts")
	}
	if config["expectCode"] == "" {
		p.ExpectStatus = job.StatusSet{{From: 100, To: 599}}
		c.note("Dkron treats every status as success, and so does this job: remove expect_status to require 2xx")
		return nil
	}
	for text := range strings.SplitSeq(config["expectCode"], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("expectCode: %q is not a status", text)
		}
		p.ExpectStatus = append(p.ExpectStatus, job.StatusRange{From: n, To: n})
	}
	return nil
}

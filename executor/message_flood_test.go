//go:build linux

package executor

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

const natsInfo = `INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"proto":1,"headers":true}` + "\r\n"

// flood is a server that a job's author runs: it greets each client, and once the client has said something, sends what
// it likes until it is cut off.
func flood(t *testing.T, greeting, once, more string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, greeting)
				if strings.HasSuffix(greeting, "\n") {
					in := bufio.NewReader(c)
					in.ReadString('\n') // CONNECT
					in.ReadString('\n') // PING
					go io.Copy(io.Discard, in)
				}
				if _, err := io.WriteString(c, once); err != nil {
					return
				}
				for sent := 0; sent < 256<<20; sent += len(more) { // an end, for a client that takes it all
					if _, err := io.WriteString(c, more); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "nats://" + ln.Addr().String()
}

// A server that is not a broker cannot fill the memory of a worker, nor end it.
func TestNATSFloods(t *testing.T) {
	block := strings.Repeat("a", 64<<10)
	for name, c := range map[string]struct{ greeting, once, more string }{
		"a message of 200 MB":               {natsInfo, "PONG\r\nMSG a 1 200000000\r\n", block},
		"one with headers":                  {natsInfo, "PONG\r\nHMSG a 1 12 200000000\r\n", block},
		"a message larger than memory":      {natsInfo, "PONG\r\nMSG a 1 4611686018427387904\r\n", block},
		"a message of less than no bytes":   {natsInfo, "PONG\r\nMSG a 1 -5\r\n", block},
		"a greeting without end":            {"INFO {", "", block},
		"a line without end":                {natsInfo, "PONG\r\n-ERR '", block},
		"many small messages":               {natsInfo, "PONG\r\n", strings.Repeat("MSG a 1 3\r\nabc\r\n", 4096)},
		"refusals of what nobody published": {natsInfo, "PONG\r\n", strings.Repeat("-ERR 'Permissions Violation for Publish to \"a\"'\r\n", 1024)},
	} {
		t.Run(name, func(t *testing.T) {
			url := flood(t, c.greeting, c.once, c.more)
			m := newTestMessage(t)
			a := messageJob(t, 1, job.MessagePayload{Broker: url, Subject: "s", Data: json.RawMessage(`"x"`)})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := m.Run(within(t, time.Minute), a)
			m.Close()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 && !raceDetector() {
				t.Errorf("it took %d bytes", took)
			}
			if r.Outcome != job.OutcomeFailed || !strings.Contains(r.Error, "the server sent") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// raceDetector says that the test runs with it. Then pools forget what is put back, and a regular expression of the
// client takes its memory anew for each line.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

package jobfile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Attack: nine levels of aliases, each of ten of the one below, stand for gigabytes. They are refused before they are
// written out, with the line where it is too much.
func TestAliasesAreBounded(t *testing.T) {
	text := "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		text += fmt.Sprintf("l%d: &l%[1]d [*l%[2]d", i+1, i) + strings.Repeat(fmt.Sprintf(", *l%d", i), 9) + "]\n"
	}
	file := func(ofPayload string) string { return "name: a\npayload:\n" + ofPayload }
	for name, text := range map[string]string{
		"lists":  text,
		"a job":  file("  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"),
		"merges": "a: &a {k: " + strings.Repeat("x", 1000) + "}\nb: [" + strings.Repeat("{<<: *a}, ", 9000) + "]\n",
		"documents": strings.Repeat("a: &a ["+strings.Repeat("x, ", 1000)+"]\nb: ["+strings.Repeat("*a, ", 90)+"]\n---\n",
			3),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(strings.NewReader(text), "jobs.yaml")
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), "jobs.yaml:") || !strings.Contains(err.Error(), "aliases") {
			t.Errorf("%s, %d bytes: %v", name, len(text), err)
			continue
		}
		t.Log(len(text), err)
		if n := after.TotalAlloc - before.TotalAlloc; len(text) < 1000 && n > 4<<20 {
			t.Errorf("%s, %d bytes: %d bytes were allocated", name, len(text), n)
		}
	}
}

// Anchors and merges as people use them work, also where one file has many.
func TestAliases(t *testing.T) {
	text := "defaults: &d {retry: {max: 3}, tags: &t [a, b]}\nname: x\n<<: *d\nagain: *t\nbig: &n 18446744073709551616\nsame: *n\n"
	docs, err := Read(strings.NewReader(text), "x")
	const want = `{"again":["a","b"],"big":18446744073709551616,"defaults":{"retry":{"max":3},"tags":["a","b"]},"name":"x",` +
		`"retry":{"max":3},"same":18446744073709551616,"tags":["a","b"]}`
	if err != nil || len(docs) != 1 || string(docs[0].JSON) != want {
		t.Errorf("%+v, %v", docs, err)
	}
	text = "- &d {timezone: Europe/Berlin, tags: [nightly, reports], retry: {max_attempts: 3, base: 10s, cap: 1m}}\n"
	for i := range 10000 {
		text += fmt.Sprintf("- {<<: *d, name: job-%d, type: http, schedule: '@daily', payload: {url: 'http://x/%[1]d'}}\n", i)
	}
	if _, err := Read(strings.NewReader(text), "x"); err != nil {
		t.Error(err)
	}
}

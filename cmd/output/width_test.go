package output

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/internal/terminal"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestVisible(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "日本": 4, "ｱｲ": 2, "Ａ": 2, "한글": 4, "\u1112\u1161\u11ab": 2, "e\u0301te\u0301": 3, "é": 1, "…": 1, "×": 1,
		"🚀": 2, "👍🏽": 2, "👨‍👩‍👧": 2, "❤️": 2, "❤": 1, "🇩🇪": 2, "🇩🇪🇫🇷": 4, "1️⃣": 2, "กำ": 2, "\u0301": 0,
		terminal.Red + "日" + terminal.Reset: 2, "a" + Detail + "b": 2,
	} {
		if got := Visible(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
}

// What is cut is never wider than it may be, and is cut between characters.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"日本語", 1, "…"},
		{"ete\u0301 chaud", 4, "ete\u0301…"}, {"👨‍👩‍👧 family", 4, "👨‍👩‍👧 …"}, {"👨‍👩‍👧 family", 2, "…"},
		{"🇩🇪🇫🇷", 3, "🇩🇪…"}, {terminal.Red + "日本語" + terminal.Reset, 4, terminal.Red + "日…" + terminal.Reset},
	} {
		if got := cut(c.text, c.n); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestCutFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String().Draw(t, "text"), rapid.IntRange(1, 20).Draw(t, "columns")
		got := cut(text, n)
		if Visible(got) > n || Visible(text) <= n && got != text {
			t.Fatalf("%q in %d columns: %q", text, n, got)
		}
	})
}

// A table with all kinds of characters, in a pipe and on terminals: the columns stand below each other.
func TestTableOfWideCharacters(t *testing.T) {
	rows := [][]string{
		{"NAME", "STATUS", "NEXT RUN", "NOTE"},
		{"hello", terminal.Green + "ok" + terminal.Reset, "in 4s" + Detail + " (12:00:04 UTC)", "plain"},
		{"日報の集計を毎朝送る", terminal.Red + "失敗" + terminal.Reset, "in 19h" + Detail + " (2026-11-19 00:00:00 JST)", "東京と大阪の全店舗の売上を集計して本社に送る"},
		{"deploy-🚀-fe\u0302te", "ok", "in 38m" + Detail + " (05:00:00 UTC)", "👨‍👩‍👧 👍🏽 🇩🇪 all of it, and then some more text"},
		{"한국어-작업", "ok", "now" + Detail + " (12:00:00 UTC)", "e\u0301te\u0301"},
	}
	var b strings.Builder
	for _, width := range []int{0, 80, 60, 40} {
		for _, color := range []bool{false, true} {
			var out bytes.Buffer
			p := &Printer{W: &out, Width: width}
			var tb Table
			for _, r := range rows {
				cells := append([]string{}, r...)
				if !color {
					for i := range cells {
						cells[i] = escapes.ReplaceAllString(cells[i], "")
					}
				}
				tb.Row(cells...)
			}
			p.Table(tb)
			starts := map[int]int{}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if n := Visible(line); width > 0 && n > width {
					t.Errorf("%d columns of %d: %s", n, width, line)
				}
				// The third column begins at the same place in every row.
				for _, mark := range []string{"NEXT", "in ", "now"} {
					if before, _, found := strings.Cut(line, mark); found {
						starts[Visible(before)]++
						break
					}
				}
			}
			if len(starts) != 1 {
				t.Errorf("in %d columns the third begins at %v:\n%s", width, starts, &out)
			}
			if width == 0 && strings.Contains(out.String(), "…") {
				t.Errorf("cut in a pipe:\n%s", &out)
			}
			if !color {
				b.WriteString(out.String() + "\n")
			}
		}
	}
	const path = "testdata/wide.golden"
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != b.String() {
		t.Errorf("%v; it is\n%s", err, b.String())
	}
}

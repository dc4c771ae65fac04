package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestSpread(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		v    []float64
		want *Spread
	}{
		{nil, nil},
		{[]float64{7}, &Spread{1, 7, 7, 7}},
		{[]float64{2, 1}, &Spread{2, 2, 2, 2}},
		{[]float64{3, -1, 2}, &Spread{3, 2, 3, 3}},
		{hundred, &Spread{100, 51, 100, 100}},
		{append(hundred, make([]float64, 9900)...), &Spread{10_000, 0, 1, 100}},
	} {
		if got := spread(c.v); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d values: %+v, want %+v", len(c.v), got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.4: "0", 7: "7", 999: "999", 1000: "1,000", 999_999.6: "1,000,000",
		12_345_678: "12,345,678", -100: "-100", -1234: "-1,234", -123_456: "-123,456"} {
		if got := count(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestGaps(t *testing.T) {
	seen := func(at ...int64) (out []effect) {
		for _, a := range at {
			out = append(out, effect{at: a})
		}
		return out
	}
	kill := func(at ...int64) (out []killing) {
		for _, a := range at {
			out = append(out, killing{a})
		}
		return out
	}
	for name, c := range map[string]struct {
		seen  []effect
		kills []killing
		want  *Spread
	}{
		"nothing was killed":        {seen(1, 2), nil, nil},
		"counted from the kill":     {seen(900, 990, 2500, 2510), kill(1000), &Spread{1, 1500, 1500, 1500}},
		"in no order":               {seen(2510, 990, 2500, 900), kill(1000), &Spread{1, 1500, 1500, 1500}},
		"a start at its moment":     {seen(900, 1000, 1400, 1450), kill(1000), &Spread{1, 400, 400, 400}},
		"the worst of several":      {seen(900, 1100, 2800, 2900), kill(1000), &Spread{1, 1700, 1700, 1700}},
		"what comes long after":     {seen(900, 1100, 4100, 9000), kill(1000), &Spread{1, 3000, 3000, 3000}},
		"not what comes after that": {seen(900, 1100, 4001, 9000), kill(1000), &Spread{1, 2901, 2901, 2901}},
		"each kill has its own": {seen(900, 1300, 9900, 10_100, 10_200), kill(1000, 10_000),
			&Spread{2, 8600, 8600, 8600}},
	} {
		if got := gaps(c.seen, c.kills); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The picture is well-formed, has every figure in it, and every point in the frame.
func TestPlot(t *testing.T) {
	if err := Plot(io.Discard, nil); err == nil {
		t.Error("a picture of nothing")
	}
	for name, results := range map[string][]*Result{
		"one": {{Jobs: 1000, Runs: 50_000, Rate: 12_345}},
		"growth": {{Jobs: 100_000, Runs: 50_000, Rate: 9500}, {Jobs: 1_000_000, Runs: 50_000, Rate: 9100},
			{Jobs: 10_000_000, Runs: 50_000, Rate: 8700}},
		"slow": {{Jobs: 1, Runs: 1, Rate: 0.4}, {Jobs: 3, Runs: 1, Rate: 0.2}},
	} {
		var b strings.Builder
		if err := Plot(&b, results); err != nil {
			t.Fatal(err)
		}
		circles := 0
		for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			el, ok := tok.(xml.StartElement)
			if !ok || el.Name.Local != "circle" {
				continue
			}
			circles++
			for _, a := range el.Attr {
				v, _ := strconv.ParseFloat(a.Value, 64) // of a colour: 0
				if a.Name.Local == "cx" && !(v >= 80 && v <= 690) || a.Name.Local == "cy" && !(v >= 50 && v <= 340) {
					t.Errorf("%s: %s is %s", name, a.Name.Local, a.Value)
				}
			}
		}
		if circles != len(results) {
			t.Errorf("%s: %d points of %d results", name, circles, len(results))
		}
		for _, r := range results {
			if !strings.Contains(b.String(), ">"+count(r.Rate)+"<") {
				t.Errorf("%s: no %s", name, count(r.Rate))
			}
		}
	}
}

// What a worker writes down is what is read.
func TestEffectsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "effects")
	if _, err := readEffects(file); err == nil {
		t.Error("a worker that wrote nothing down did nothing")
	}
	r := &recorder{seen: []effect{{job.RunKey{Job: math.MaxUint64, At: -1, Origin: job.OriginManual}, 7, 99},
		{job.RunKey{Job: 1, At: 1_800_000_000_000, Origin: job.OriginSchedule}, 8, 100}}}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := readEffects(file); err != nil || !reflect.DeepEqual(got, r.seen) {
		t.Errorf("%+v %v", got, err)
	}
}

// A result with a problem has nothing in it that says how fast it was, in whichever field; one without is as it was.
func TestWrongResultsHaveNoFigures(t *testing.T) {
	full := func() *Result {
		r := &Result{}
		v := reflect.ValueOf(r).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Int:
				f.SetInt(2)
			case reflect.Uint64:
				f.SetUint(3)
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Float64:
				f.SetFloat(4)
			case reflect.Pointer:
				if f.Type().Elem().Kind() == reflect.Int {
					f.Set(reflect.ValueOf(new(int)))
					break
				}
				f.Set(reflect.ValueOf(&Spread{Count: 1, P50: 1, P99: 1, Max: 1}))
			case reflect.Slice:
			default:
				t.Fatalf("%s: fill it in", v.Type().Field(i).Name)
			}
		}
		return r
	}
	if r := full(); r.judged() != r || len(r.Lines()) < 15 {
		t.Errorf("%+v", r.judged())
	}
	r := full()
	r.problem("it was %s", "wrong")
	r = r.judged()
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Float64, reflect.Pointer:
			if !f.IsZero() {
				t.Errorf("%s is %v", v.Type().Field(i).Name, f)
			}
		}
	}
	if r.Scenario != "x" || r.Jobs != 3 || r.Runs != 2 || r.Lost != 2 || r.Repeated != 2 || len(r.Problems) != 1 {
		t.Errorf("%+v", r)
	}
	text := fmt.Sprint(r.Lines())
	for _, want := range []string{"[runs 2]", "[created 2]", "[lost, repeated 2, 2]", "[problem it was wrong]"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

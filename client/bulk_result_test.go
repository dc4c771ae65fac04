package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carillon-scheduler/carillon/job"
)

func sameResult(t *testing.T, line string) (byHand bool) {
	t.Helper()
	var mine, theirs BulkResult
	byHand = new(resultReader).read([]byte(line), &mine)
	if err := json.Unmarshal([]byte(line), &theirs); byHand && (err != nil || !reflect.DeepEqual(mine, theirs)) {
		t.Errorf("%q is read as %+v and not as %+v, %v", line, mine, theirs, err)
	}
	return byHand
}

func TestBulkResultsReadByHand(t *testing.T) {
	for _, line := range []string{`{"line":1,"status":"created","job_id":"j_1","name":"a"}`, `{"line":1000000,"status":"exists","job_id":"j_fvvvv"}`} {
		if !sameResult(t, line) {
			t.Errorf("%s needs package json", line)
		}
	}
	for _, line := range oddResults {
		if sameResult(t, line) {
			t.Errorf("%s is read by hand", line)
		}
	}
}

var oddResults = []string{``, `{}`, `{"line":01,"status":"created","job_id":"j_1"}`, `{"line":1,"status":"created"}`, `{"line":1,"status":"created","job_id":"1"}`, `{"line":99999999999,"status":"created","job_id":"j_1"}`,
	`{"line":1,"status":"created","job_id":"j_1","name":"\u0061"}`, `{"line":1,"status":"created","job_id":"j_1","name":"ä"}`, `{"line":1,"status":"created","job_id":"j_1","name":""}`,
	`{"line":1,"status":"created","job_id":"j_1","more":1}`, `{"line":1,"status":"created","job_id":"j_1"} x`, `{"line":1,"status":"created","job_id":"j_1"`, `{"line":1,"status":"error","error":{"code":"x"}}`}

func FuzzBulkResult(f *testing.F) {
	f.Add(`{"line":1,"status":"created","job_id":"j_1","name":"a"}`)
	for _, line := range oddResults {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) { sameResult(t, line) })
}

// However the network cuts the answers, they are the same; what breaks off in the middle of one is noticed.
func TestBulkResultsInPieces(t *testing.T) {
	long := `{"line":2,"status":"error","error":{"code":"invalid","message":"` + strings.Repeat("x", 100_000) + `"}}`
	body := `{"line":1,"status":"created","job_id":"j_1","name":"a"}` + "\n\n" + long + "\r\n" + `{"line":3,"status":"exists","job_id":"j_2"}`
	for name, in := range map[string]io.Reader{"whole": strings.NewReader(body), "bytes": iotest.OneByteReader(strings.NewReader(body)), "end": iotest.DataErrReader(strings.NewReader(body))} {
		r := resultReader{in: bufio.NewReaderSize(in, 64<<10)}
		for i := 1; i <= 3; i++ {
			if res, err := r.next(); err != nil || res.Line != i || (res.Error == nil) != (i != 2) {
				t.Fatalf("%s: %+v %v", name, res, err)
			}
		}
		if _, err := r.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, broken := range []string{body[:20], long[:70_000], "garbage\n", strings.Repeat("x", 3<<20)} {
		r := resultReader{in: bufio.NewReaderSize(strings.NewReader(broken), 64<<10)}
		if res, err := r.next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%.20q is %+v, %v", broken, res, err)
		}
	}
	r := resultReader{in: bufio.NewReader(io.MultiReader(strings.NewReader(`{"line":1,"st`), iotest.ErrReader(errors.New("reset"))))}
	if _, err := r.next(); err == nil || err.Error() != "reset" {
		t.Error(err)
	}
	if a, b := (&resultReader{ids: make([]job.ID, 2)}), new(BulkResult); !a.read([]byte(`{"line":1,"status":"created","job_id":"j_1"}`), b) || len(a.ids) != 1 {
		t.Error("memory for the ids is not used up one by one")
	}
}

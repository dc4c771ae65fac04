package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	_ "github.com/carillon-scheduler/carillon/executor" // the types of job
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

type dict = map[string]any

var parsed = sync.OnceValues(func() (dict, error) {
	var doc dict
	err := json.Unmarshal(openapiDocument(), &doc)
	return doc, err
})

func document(t testing.TB) dict {
	t.Helper()
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(dict)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func TestOpenAPIHasEveryRouteAndNoOther(t *testing.T) {
	doc := document(t)
	documented := map[string]bool{}
	for path, item := range at(doc, "paths").(dict) {
		for method := range item.(dict) {
			documented[strings.ToUpper(method)+" "+path] = true
		}
	}
	for _, rt := range routes() {
		name := rt.method + " " + rt.path
		if !documented[name] {
			t.Errorf("%s is not in the document", name)
			continue
		}
		delete(documented, name)
		checkParameters(t, doc, rt)
	}
	for name := range documented {
		t.Errorf("%s is in the document but is no route", name)
	}
}

func checkParameters(t *testing.T, doc dict, rt route) {
	op := at(doc, "paths", rt.path, strings.ToLower(rt.method))
	params, _ := at(op, "parameters").([]any)
	var query, inPath []string
	key := false
	for _, p := range params {
		if ref, ok := at(p, "$ref").(string); ok {
			p = resolve(doc, ref)
		}
		name := at(p, "name").(string)
		switch at(p, "in") {
		case "query":
			query = append(query, name)
		case "path":
			inPath = append(inPath, name)
		case "header":
			key = key || name == "Idempotency-Key"
		}
	}
	want := rt.query
	if slices.Contains(want, anyQuery) {
		want = nil
	}
	if !slices.Equal(slices.Sorted(slices.Values(query)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%s %s: the document has the parameters %q, the route %q", rt.method, rt.path, query, want)
	}
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(rt.path, -1) {
		if !slices.Contains(inPath, m[1]) {
			t.Errorf("%s %s: the path parameter %s is not described", rt.method, rt.path, m[1])
		}
	}
	// The messages of workers may be repeated as they are: a session says what has arrived, and results are fenced.
	if mutates := rt.method != "GET" && rt.path != prefix+"/schedule:preview" && !strings.HasPrefix(rt.path, prefix+"/workers:"); mutates != key {
		t.Errorf("%s %s: Idempotency-Key documented: %v, want %v", rt.method, rt.path, key, mutates)
	}
	if hasBody := at(op, "requestBody") != nil; hasBody != !slices.Contains([]bodyKind{emptyBody, streamBody, waitBody}, rt.body) {
		t.Errorf("%s %s: requestBody documented: %v", rt.method, rt.path, hasBody)
	}
}

func TestOpenAPIHasEveryFieldAndNoOther(t *testing.T) {
	doc := document(t)
	for name, typ := range map[string]any{
		"Spec": job.Spec{}, "Job": job.Job{}, "Run": job.Run{}, "Retry": job.Retry{}, "Missed": job.Missed{}, "Notify": job.Notify{}, "Notification": job.Notification{}, "NotificationStatus": wire.NotificationStatus{}, "Error": job.Error{},
		"HTTPPayload": job.HTTPPayload{}, "ShellPayload": job.ShellPayload{}, "QueuePayload": job.QueuePayload{}, "MessagePayload": job.MessagePayload{},
		"JobPage": wire.JobPage{}, "RunPage": wire.RunPage{}, "RunDetail": wire.RunDetail{}, "OccurrencePage": wire.OccurrencePage{}, "OccurrenceSummary": wire.OccurrenceSummary{}, "Occurrence": wire.Occurrence{},
		"Why": wire.Why{}, "RotateRequest": wire.RotateRequest{}, "Removal": wire.Removal{}, "MoveGroupRequest": wire.MoveGroupRequest{}, "GroupMove": wire.GroupMove{}, "GrowRequest": wire.GrowRequest{}, "Growth": wire.Growth{}, "NewGroup": wire.NewGroup{}, "GroupStatus": wire.GroupStatus{}, "Rotation": wire.Rotation{}, "BackupNote": wire.BackupNote{}, "Check": wire.Check{}, "JobStats": wire.JobStats{}, "Quantiles": wire.Quantiles{}, "LastRun": wire.LastRun{}, "DeadGroup": wire.DeadGroup{}, "Stats": wire.Stats{}, "StatsBucket": wire.StatsBucket{}, "StatsCounts": wire.StatsCounts{}, "NotRunCount": wire.NotRunCount{}, "StatsEvent": wire.StatsEvent{}, "ClusterEvent": wire.ClusterEvent{}, "MemberEvent": wire.MemberEvent{},
		"JobAction": wire.JobAction{}, "JobActionArgs": wire.JobActionArgs{}, "JobFilter": wire.JobFilter{}, "JobActionProgress": wire.JobActionProgress{}, "JobActionError": wire.JobActionError{},
		"UpcomingPage": wire.UpcomingPage{}, "Upcoming": wire.Upcoming{}, "UpcomingLoad": wire.UpcomingLoad{}, "LoadBucket": wire.LoadBucket{}, "LoadTop": wire.LoadTop{}, "LoadSchedule": wire.LoadSchedule{},
		"EditPreview": wire.EditPreview{}, "FieldChange": wire.FieldChange{}, "EditDropped": wire.EditDropped{}, "DevKillRequest": wire.DevKillRequest{}, "Sharing": wire.Sharing{}, "JitterPeak": wire.JitterPeak{}, "DeadGroupPage": wire.DeadGroupPage{}, "RunSummary": wire.RunSummary{}, "LongRun": wire.LongRun{}, "DeadLetter": job.DeadLetter{}, "DeadPage": wire.DeadPage{},
		"DeadQuery": wire.DeadQuery{}, "DeadResult": wire.DeadResult{}, "CancelResult": wire.CancelResult{}, "BulkResult": wire.BulkResult{},
		"BackfillRequest": wire.BackfillRequest{}, "BackfillResult": wire.BackfillResult{}, "PreviewRequest": wire.PreviewRequest{},
		"PreviewTime": wire.PreviewTime{}, "PreviewResult": wire.PreviewResult{}, "Calendar": schedule.Calendar{}, "Window": schedule.Window{},
		"CalendarList": wire.CalendarList{}, "Token": wire.Token{}, "TokenRequest": wire.TokenRequest{}, "TokenCreated": wire.TokenCreated{}, "TokenList": wire.TokenList{}, "Secret": wire.Secret{}, "SecretRequest": wire.SecretRequest{}, "SecretList": wire.SecretList{}, "Whoami": wire.Whoami{},
		"Queue": wire.Queue{}, "QueueList": wire.QueueList{}, "Status": wire.Status{}, "Member": wire.Member{}, "WorkerStatus": wire.WorkerStatus{}, "Trouble": wire.Trouble{},
		"JoinRequest": wire.JoinRequest{}, "JoinReply": wire.JoinReply{}, "NodeRequest": wire.NodeRequest{}, "NodeInfo": wire.NodeInfo{},
		"HistoryStatus": wire.HistoryStatus{}, "HoldStatus": wire.HoldStatus{}, "ReleaseResult": wire.ReleaseResult{}, "Problem": wire.Problem{},
		"Poll": job.Poll{}, "NodeRef": job.NodeRef{}, "PollReply": job.PollReply{}, "Ref": job.Ref{}, "Stop": job.Stop{}, "Heartbeat": job.Heartbeat{},
		"HeartbeatReply": job.HeartbeatReply{}, "Answer": job.Answer{}, "Report": job.Report{}, "Result": job.Result{}, "ReportReply": job.ReportReply{},
		"Output": job.Output{}, "OutputReply": job.OutputReply{}, "RunOutput": job.RunOutput{},
	} {
		t.Run(name, func(t *testing.T) {
			props, _ := at(doc, "components", "schemas", name, "properties").(dict)
			have := jsonFields(reflect.TypeOf(typ))
			for field, typ := range have {
				p, ok := props[field]
				if !ok {
					t.Errorf("the field %s is not in the document", field)
					continue
				}
				if got, want := at(p, "type"), jsonType(typ); want != "" && got != nil && got != want && !reflect.DeepEqual(got, []any{want, "null"}) {
					t.Errorf("%s: the document says %v, the code %s", field, got, want)
				}
				if at(p, "description") == nil && at(p, "$ref") == nil {
					t.Errorf("%s has no description", field)
				}
			}
			for field := range props {
				if _, ok := have[field]; !ok {
					t.Errorf("the document has %s, the code has not", field)
				}
			}
		})
	}
}

// An assignment writes its own JSON: of a queue another one than of the rest.
func TestOpenAPIHasEveryFieldOfAnAssignment(t *testing.T) {
	a := job.Assignment{Claim: "c", Fence: 7, Run: job.RunKey{Job: 1, Origin: job.OriginManual}, JobName: "n", Type: job.TypeHTTP, Payload: []byte(`{"queue":"q","data":1}`),
		Traceparent: "t", Secrets: []string{"s"}, Hosts: []string{"h"}}
	have := dict{}
	for _, a.Type = range []job.Type{job.TypeHTTP, job.TypeQueue} {
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &have); err != nil { // into the same map: it gets the fields of both
			t.Fatal(err)
		}
	}
	props, _ := at(document(t), "components", "schemas", "Assignment", "properties").(dict)
	if got, want := slices.Sorted(maps.Keys(props)), slices.Sorted(maps.Keys(have)); !slices.Equal(got, want) {
		t.Errorf("the document has %q, the code %q", got, want)
	}
}

// jsonFields are the fields of a struct as encoding/json sees them.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			for k, v := range jsonFields(f.Type) {
				if _, shadowed := out[k]; !shadowed {
					out[k] = v
				}
			}
		case name != "-":
			out[name] = f.Type
		}
	}
	return out
}

func jsonType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[job.Instant](), reflect.TypeFor[job.Duration](), reflect.TypeFor[job.ID](), reflect.TypeFor[job.Origin](),
		reflect.TypeFor[job.RunStatus](), reflect.TypeFor[job.Reason](), reflect.TypeFor[job.Outcome](), reflect.TypeFor[time.Time](), reflect.TypeFor[[]byte]():
		return "string"
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[job.StatusSet]():
		return ""
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

func TestOpenAPIEnums(t *testing.T) {
	doc := document(t)
	enum := func(path ...string) []string {
		var out []string
		list, _ := at(doc, append([]string{"components", "schemas"}, path...)...).([]any)
		for _, v := range list {
			out = append(out, v.(string))
		}
		return slices.Sorted(slices.Values(out))
	}
	var codes []string
	for c := range wire.Statuses {
		codes = append(codes, string(c))
	}
	if got := enum("Problem", "properties", "code", "enum"); !slices.Equal(got, slices.Sorted(slices.Values(codes))) {
		t.Errorf("codes: %q", got)
	}
	var states, reasons []string
	for i := range 256 {
		if s := job.RunStatus(i).String(); s != "" {
			states = append(states, s)
		}
		if s := job.Reason(i).String(); s != "" {
			reasons = append(reasons, s)
		}
	}
	if got := enum("Run", "properties", "status", "enum"); !slices.Equal(got, slices.Sorted(slices.Values(states))) {
		t.Errorf("run states: %q", got)
	}
	if got := enum("Run", "properties", "reason", "enum"); !slices.Equal(got, slices.Sorted(slices.Values(reasons))) {
		t.Errorf("reasons: %q", got)
	}
	if !slices.Equal(slices.Sorted(slices.Values(runStatuses)), slices.Sorted(slices.Values(states))) {
		t.Errorf("the query knows %q", runStatuses)
	}
}

func TestReadOnlyIsWhatAJobHasAndASpecHasNot(t *testing.T) {
	var want []string
	spec := jsonFields(reflect.TypeFor[job.Spec]())
	for name := range jsonFields(reflect.TypeFor[job.Job]()) {
		if _, ok := spec[name]; !ok {
			want = append(want, name)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(readOnly)), slices.Sorted(slices.Values(want))) {
		t.Errorf("readOnly is %q, want %q", readOnly, want)
	}
}

func resolve(doc dict, ref string) any {
	return at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

package cmd

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Every field of a job that says something is shown, whatever is added to them.
func TestJobViewHasEveryField(t *testing.T) {
	view := func(j job.Job) string { return shown(false, time.UTC, func(p *printer) { p.job(j) }) }
	bare := job.Job{ID: 1, Spec: job.Spec{Schedule: "@daily"}}
	typ := reflect.TypeFor[job.Spec]()
	for i := range typ.NumField() {
		j := bare
		set(t, reflect.ValueOf(&j.Spec).Elem().Field(i))
		if view(j) == view(bare) {
			t.Errorf("%s is not shown:\n%s", typ.Field(i).Name, view(j))
		}
	}
}

// set gives a field some value.
func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`{}`))
		return
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
		return
	case []string:
		v.Set(reflect.ValueOf([]string{"x"}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("xx")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1_700_000_000_000)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			set(t, v.Field(i))
		}
	default:
		t.Fatalf("a %s cannot be set", v.Kind())
	}
}

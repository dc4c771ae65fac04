package service

import (
	"reflect"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// What a follower says of the cluster is what the leader says, and nothing of it from its own state, which may be
// behind. What is about the node stays its own.
func TestFollowersStatusIsTheLeaders(t *testing.T) {
	own := []string{"Node", "Version", "State", "Leader", "Term", "Ready", "NotReady", "Now", "StartedAt", "Raft", "Disk",
		"Skipped"}
	apart := []string{"Groups", "Troubles", "Insecure"} // made or merged from both
	var s, far wire.Status
	v := reflect.ValueOf(&far).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Uint64:
			f.SetUint(7)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		default:
			f.Field(0).SetUint(7)
		}
	}
	adopt(&s, &far)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		got, leaders := reflect.ValueOf(s).Field(i), v.Field(i)
		switch {
		case slices.Contains(apart, name):
		case slices.Contains(own, name):
			if !got.IsZero() {
				t.Errorf("%s is about the node, and is the leader's", name)
			}
		case !reflect.DeepEqual(got.Interface(), leaders.Interface()):
			t.Errorf("%s: %v, the leader says %v", name, got, leaders)
		}
	}
}

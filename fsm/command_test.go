package fsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everyCommand is one command of each kind with everything in it set, by the name of its golden file.
func everyCommand() map[string]Command {
	all := samples()
	for i := range commands {
		if commands[i].make == nil {
			continue
		}
		cmd := commands[i].make()
		if name := goldenName(cmd); all[name] == nil {
			fillSample(reflect.ValueOf(cmd).Elem())
			all[name] = cmd
		}
	}
	return all
}

// goldenName makes claim_notices of *ClaimNotices.
func goldenName(cmd Command) string {
	name := reflect.TypeOf(cmd).Elem().Name()
	return strings.ToLower(name[:1] + regexp.MustCompile("[A-Z]").ReplaceAllString(name[1:], "_$0"))
}

// fillSample sets everything in a command that has no sample of its own. Lists have two entries.
func fillSample(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillSample(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fillSample(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillSample(v.Index(0))
		fillSample(v.Index(1))
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillSample(k)
		fillSample(e)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("text")
	case reflect.Int64:
		v.SetInt(T(1))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

// samples are those that say more than fillSample would.
func samples() map[string]Command {
	h := Head{Now: T(1), Term: 3}
	q := Request{ID: "req-1", Fingerprint: 0xfeed, Expires: T(86400)}
	spec := testSpec(func(s *job.Spec) { s.Name, s.Tags = "nightly", map[string]string{"b": "2", "a": "1"} })
	def := store.Definition{Spec: spec, Version: 2, CreatedAt: T(0), UpdatedAt: T(1)}
	d := def.Append(nil)
	seen := Seen{Gen: 4, Parked: true, At: T(5), Ready: T(6)}
	when := When{At: T(7), Ready: T(8)}
	g := Gap{First: T(1), Last: T(3), Count: 3, AtLeast: true, Status: job.RunMissed, Reason: job.ReasonOutage}
	kind := byte(store.KindOccurrence)<<4 | byte(job.OriginSchedule)
	return map[string]Command{
		"create":   &Create{Head: h, Items: []CreateItem{{Job: 1, Def: d, Next: when, Request: q}, {Job: 2, Def: d}}},
		"update":   &Update{h, q, 1, 1, seen, d, when, g, Gap{}, 0, 0},
		"delete":   &Delete{h, q, 1, 2, g},
		"pause":    &Pause{h, q, 1},
		"resume":   &Resume{h, q, 1, seen, when, g},
		"trigger":  &Trigger{h, q, 1, "{job_id}-{run_id}", "nightly"},
		"backfill": &Backfill{h, q, 1, []int64{T(1), T(2)}, []string{"a", "b"}, 9, true, nil},
		"claim": &Claim{Head: h, Workers: []WorkerRef{{"w1", 1, 0}, {"w2", 2, 1 << 63}}, Lane: []byte{2, 0}, Kind: []byte{kind, 0x22}, Ready: []int64{T(1), T(2)},
			Jobs: []uint64{1, 1 << 44}, At: []int64{T(1), T(0)}, Gen: []uint32{1, 0}, Next: []int64{T(61), 0}, NextReady: []int64{T(62), 0},
			Worker: []uint16{0, 1}, Timeout: []int64{30_000, 0}, Version: []uint64{1, 7}, Keys: []string{"", "k"}, Flags: []byte{ClaimLast, 0}, Late: []Late{{0, g}}},
		"complete": &Complete{Head: h, Jobs: []uint64{1}, At: []int64{T(1)}, Origin: []byte{1}, Fence: []uint64{77}, Result: []byte{2}, Reason: []byte{14},
			RetryAt: []int64{T(9)}, Started: []int64{T(1)}, Ended: []int64{T(2)}, Error: []string{"timeout"}, Output: []string{"…"}},
		"expire": &Expire{h, []uint64{1}, []int64{T(1)}, []byte{2}, []uint64{78}, []int64{T(2)}},
		"advance": &Advance{Head: h, Lane: []byte{2}, Kind: []byte{kind}, Ready: []int64{T(1)}, Jobs: []uint64{1}, At: []int64{T(1)}, Gen: []uint32{1},
			Next: []int64{T(61)}, NextReady: []int64{T(62)}, Gaps: []Gap{g}, Rows: []CatchUp{{At: T(50)}, {At: T(55), Key: "k"}}},
		"admit": &Admit{Head: h, Lane: []byte{2}, Ready: []int64{T(1)}, Jobs: []uint64{1}, At: []int64{T(1)}, Gen: []uint32{1}, Next: []int64{T(61)}, NextReady: []int64{T(62)},
			Gaps: []Gap{g}, Past: []int64{T(121)}, PastReady: []int64{T(122)}, Keys: []string{"k"}, Flags: []byte{ClaimLast}},
		"cancel":      &Cancel{h, q, 1, T(1), 2, true},
		"redrive":     &Redrive{h, q, []uint64{5, 6}, "team-a"},
		"purge":       &Purge{h, q, []uint64{5, 6}, "team-a"},
		"trim":        &Trim{h, T(0), 1000, 50},
		"stamp":       &Stamp{h, true, 1 << 40, 1<<64 - 2},
		"calendar":    &Calendar{h, q, "team-a", "holidays", []byte(`{"days":[]}`)},
		"quarantine":  &Quarantine{h, 1, 4, "bad schedule"},
		"clock_reset": &ClockReset{h, q},
		"cleanup":     &Cleanup{h, []byte{3}, []int64{T(1)}, []uint64{1}, T(99)},
		"init":        &Init{h, "cluster-1", 3, store.Token{}, "", 0, 0, 0, ""},
		"put_node": &PutNode{h, store.Node{ID: "n1", Instance: "i1", Address: "n1.example:7400", Version: "1.2.3", Level: 1, Slots: 256,
			Tags: map[string]string{"b": "2", "a": "1"}, Standby: true, JoinedAt: T(0), Index: 7, Removed: true, Key: "k"}, "abcdefghijkm"},
		"remove_node": &RemoveNode{h, "n1", "i1"},
		"set_level":   &SetLevel{h, 2},
		"put_queue": &PutQueue{Head: h, Request: q, Namespace: "team-a", Name: "mail", Version: 9, Set: QueueConcurrency | QueuePaused | QueueKnown,
			Concurrency: 25, Paused: true},
		"put_secret":     &PutSecret{h, q, "team-a", "api-key", 3, sealedBytes, []string{"api.example.com", "10.0.0.1:8443"}, "root"},
		"delete_secret":  &DeleteSecret{h, q, "team-a", "api-key"},
		"reseal_secrets": &ResealSecrets{h, []ResealedSecret{{"team-a", "api-key", sealedBytes[:21], sealedBytes, sealedBytes}}},
		"delete_queue":   &DeleteQueue{h, q, "team-a", "mail", 9},
		"release":        &Release{h, q, 0},
		"close_restored": &CloseRestored{h, 1024},
		"claim_notices":  &ClaimNotices{h, "n1", []uint64{1, 2}, []uint64{7, 9}, []byte{3, 1}, []byte{2, 1}},
		"settle_notices": &SettleNotices{Head: h, Jobs: []uint64{1}, Seqs: []uint64{7}, Attempt: []uint32{2}, Sent: []byte{1}, Unknown: []byte{2}, Failed: []byte{4},
			RetryAt: []int64{T(30)}, Error: []string{"503"}},
	}
}

// variants are commands with what came later than their type.
func variants() map[string]Command {
	u := *everyCommand()["update"].(*Update)
	g := Gap{First: T(9), Last: T(11), Count: 2, Status: job.RunSkipped, Reason: job.ReasonEdited}
	u.After = g
	b := *everyCommand()["backfill"].(*Backfill)
	b.Left = []int64{T(3), T(4)}
	by := Caller{Token: "abcdefghijkm", Name: "ci", Address: "192.0.2.7", Request: "r-1"}
	p := *everyCommand()["pause"].(*Pause)
	p.By = &by
	c := *everyCommand()["create"].(*Create)
	c.Callers = []Caller{by, {Address: "192.0.2.8", Bulk: true}}
	c.Items = slices.Clone(c.Items)
	c.Items[0].By, c.Items[1].By = 1, 2
	away := Update{Head: u.Head, Job: 1, Home: 2, Reservation: 1 << 44}
	made := Create{Head: u.Head, Items: []CreateItem{{Job: 3 << 56, Home: 2, Reservation: 1 << 44}, {Job: 3<<56 + 1}}}
	group := Init{Head: u.Head, ClusterID: "cluster-1", Group: 3, GroupID: "group-3", Homes: 4, Groups: 8}
	return map[string]Command{"update_after": &u, "backfill_left": &b, "pause_by": &p, "create_by": &c, "update_away": &away,
		"create_away": &made, "init_group": &group}
}

// The bytes of a command are in logs for as long as those are kept: a binary that writes or reads them differently has another
// command version.
func TestCommandsHaveGoldenBytes(t *testing.T) {
	all := everyCommand()
	if len(all) != len(numbers) {
		t.Fatalf("%d commands have an example, there are %d", len(all), len(numbers))
	}
	maps.Copy(all, variants())
	for name, cmd := range all {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "testdata", "commands", name+".golden")
			data := mustEncode(t, cmd)
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(fold(hex.EncodeToString(data))), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run go test ./fsm -run Golden -update", err)
			}
			golden, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
			if err != nil {
				t.Fatal(err)
			}
			equalBytes(t, name, data, golden)
			back, err := Decode(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, cmd) {
				t.Errorf("read back:\n got %+v\nwant %+v", back, cmd)
			}
		})
	}
}

func fold(s string) string {
	var b strings.Builder
	for len(s) > 96 {
		b.WriteString(s[:96] + "\n")
		s = s[96:]
	}
	return b.String() + s + "\n"
}

// Unset columns and fields survive as well.
func TestEmptyCommandsRoundTrip(t *testing.T) {
	for i := range commands {
		if commands[i].make == nil {
			continue
		}
		cmd := commands[i].make()
		back, err := Decode(mustEncode(t, cmd))
		if err != nil || !reflect.DeepEqual(mustEncode(t, back), mustEncode(t, cmd)) {
			t.Errorf("%T: %v %+v", cmd, err, back)
		}
		if n := cmd.items(); n > 1 {
			t.Errorf("%T has %d items", cmd, n)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	if _, err := Encode(&Calendar{Name: "x", Data: make([]byte, MaxEntry)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := Encode(struct{ *Pause }{}); err == nil { // that Pause{} is none, the compiler says
		t.Error("a command has a number")
	}
	if _, err := Encode(nil); err == nil {
		t.Error("nil is no command")
	}
}

// Columns are read by index in the middle of an apply: their lengths are checked before.
func TestColumnsOfDifferentLengthsAreRefused(t *testing.T) {
	for name, cmd := range everyCommand() {
		v := reflect.ValueOf(cmd).Elem()
		if reflect.New(v.Type()).Interface().(Command).items() != 0 && name != "backfill" || v.FieldByName("Items").IsValid() {
			continue // not one of columns
		}
		for i := range v.NumField() {
			f, field := v.Field(i), v.Type().Field(i).Name
			if f.Kind() != reflect.Slice || f.Len() == 0 || field == "Workers" || field == "Rows" || field == "Late" { // lists of their own

				continue
			}
			short, long := f.Slice(0, f.Len()-1), reflect.Append(f, f.Index(0))
			whole := reflect.ValueOf(f.Interface())
			for _, other := range []reflect.Value{short, long} {
				f.Set(other)
				// The optional columns may be left out as a whole.
				optional := other.Len() == 0 && (field == "Keys" || field == "Flags" || field == "Error" || field == "Output")
				if _, err := Decode(mustEncode(t, cmd)); (err == nil) != optional {
					t.Errorf("%s: column %s with %d of %d: %v", name, field, other.Len(), whole.Len(), err)
				}
			}
			f.Set(whole)
		}
	}
	if _, err := Decode(mustEncode(t, &Claim{Workers: []WorkerRef{{"w", 1, 0}}, Lane: []byte{0}, Kind: []byte{0}, Ready: []int64{0}, Jobs: []uint64{0},
		At: []int64{0}, Gen: []uint32{0}, Next: []int64{0}, NextReady: []int64{0}, Worker: []uint16{1}, Timeout: []int64{0}, Version: []uint64{0}})); err == nil {
		t.Error("a worker that is not in the list")
	}
	if _, err := Decode(append(mustEncode(t, &Pause{Job: 1}), 0)); err == nil {
		t.Error("bytes after the command")
	}
}

// Columns are differences; those wrap around at both ends, and what does not fit its type is refused.
func TestColumnsPack(t *testing.T) {
	times := Times{0, T(1), T(1), T(2), -1, math.MaxInt64, math.MinInt64, 0}
	numbers := Numbers{5, 0, math.MaxUint64, 1 << 63, 7}
	gens, indexes := Gens{math.MaxUint32, 0, 3}, Indexes{math.MaxUint16, 0}
	back := struct {
		t Times
		n Numbers
		g Gens
		i Indexes
	}{}
	for _, c := range []struct {
		from interface{ MarshalBinary() ([]byte, error) }
		to   interface{ UnmarshalBinary([]byte) error }
	}{{times, &back.t}, {numbers, &back.n}, {gens, &back.g}, {indexes, &back.i}} {
		b, err := c.from.MarshalBinary()
		if err == nil {
			err = c.to.UnmarshalBinary(b)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(back.t, times) || !slices.Equal(back.n, numbers) || !slices.Equal(back.g, gens) || !slices.Equal(back.i, indexes) {
		t.Errorf("%+v", back)
	}
	wide, err := Times{1 << 40}.MarshalBinary()
	if err != nil || back.g.UnmarshalBinary(wide) == nil || back.i.UnmarshalBinary(wide) == nil {
		t.Error("a number that does not fit was read")
	}
	below, _ := Times{-1}.MarshalBinary()
	for _, bad := range [][]byte{{0x80}, {1, 0x80}, bytes.Repeat([]byte{0xff}, 11), below} {
		if back.g.UnmarshalBinary(bad) == nil {
			t.Errorf("%x was read", bad)
		}
	}
	if err := back.t.UnmarshalBinary(nil); err != nil || back.t != nil {
		t.Errorf("%v %v", back.t, err)
	}
}

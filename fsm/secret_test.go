package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// sealedBytes looks like a sealed value.
var sealedBytes = append([]byte{1}, bytes.Repeat([]byte{7}, 100)...)

func putSecret(name string, version uint64, change ...func(*PutSecret)) *PutSecret {
	c := &PutSecret{Namespace: "team-a", Name: name, Version: version,
		Sealed: append(bytes.Clone(sealedBytes), byte(version)), SetBy: "root"}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestSecretsAreSetAndDeleted(t *testing.T) {
	w := newWorld(t)
	k := store.SecretKey{Namespace: "team-a", Name: "api-key"}
	first := putSecret("api-key", 1, func(c *PutSecret) {
		c.Request, c.Hosts = Request{ID: "k:1", Fingerprint: 1, Expires: T(1000)}, []string{"api.example.com", "[::1]:8443", "::1"}
	})
	if o := w.want(CodeOK, first); o.Version != 1 {
		t.Errorf("%+v", o)
	}
	row, ok := w.st.Secret(k)
	if !ok || row.Version != 1 || !bytes.Equal(row.Sealed, first.Sealed) || row.Previous != nil || row.SetAt != w.now ||
		row.SetBy != "root" || len(row.Hosts) != 3 {
		t.Fatalf("%+v, %v", row, ok)
	}
	w.unchanged(CodeOK, first)                      // a repetition
	w.unchanged(CodeMoved, putSecret("api-key", 1)) // another was first
	w.unchanged(CodeMoved, putSecret("api-key", 3))
	w.unchanged(CodeMoved, putSecret("other", 2))
	second := putSecret("api-key", 2)
	w.want(CodeOK, second)
	if row, _ := w.st.Secret(k); row.Version != 2 || !bytes.Equal(row.Previous, first.Sealed) || row.Hosts != nil {
		t.Errorf("%+v", row)
	}
	if _, ok := w.st.Secret(store.SecretKey{Namespace: job.DefaultNamespace, Name: "api-key"}); ok {
		t.Error("it is in another namespace too")
	}
	w.want(CodeOK, putSecret("api-key", 1, func(c *PutSecret) { c.Namespace = "" }))

	// A new cluster key changes neither version nor value.
	anew := bytes.Repeat([]byte{1, 8}, 60)
	it := ResealedSecret{Namespace: "team-a", Name: "api-key", Was: keys.SealMark(second.Sealed), Sealed: anew}
	none, other, odd, empty := it, it, it, it
	none.Name, other.Was, odd.Sealed, empty.Was = "none", bytes.Repeat([]byte{9}, len(it.Was)), []byte("open"), nil
	reply := w.do(w.by(Caller{Name: "leader n1"}, &ResealSecrets{Items: []ResealedSecret{none, other, odd, empty, it, it}}))[0]
	for i, code := range []Code{CodeNotFound, CodeMoved, CodeRefused, CodeMoved, CodeOK, CodeMoved} {
		if reply.Items[i].Code != code {
			t.Errorf("item %d: %+v", i, reply.Items[i])
		}
	}
	if row, _ := w.st.Secret(k); row.Version != 2 || !bytes.Equal(row.Sealed, anew) || row.Previous != nil || row.SetBy != "root" {
		t.Errorf("%+v", row)
	}
	if all := w.audits(); len(all) != 1 || all[0].Action != "secret.reseal" || all[0].Done != 1 || all[0].Unchanged != 3 || all[0].Refused != 2 {
		t.Errorf("%+v", all)
	}

	// They come back with the file.
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	var all []string
	w.st.EachSecret(func(k store.SecretKey, s *store.Secret) {
		all = append(all, fmt.Sprint(k.Namespace, " ", k.Name, " ", s.Version))
	})
	if got := strings.Join(all, ", "); got != "default api-key 1, team-a api-key 2" {
		t.Errorf("%s", got)
	}
	w.want(CodeOK, &DeleteSecret{Namespace: "team-a", Name: "api-key"})
	w.unchanged(CodeNotFound, &DeleteSecret{Namespace: "team-a", Name: "api-key"})
	w.unchanged(CodeNotFound, &DeleteSecret{Namespace: "team-b", Name: "api-key"})
	if _, ok := w.st.Secret(k); ok {
		t.Error("it is still there")
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*PutSecret){
		"a value that is not sealed": func(c *PutSecret) { c.Sealed = []byte("hunter2") },
		"a value that is too long":   func(c *PutSecret) { c.Sealed = append(c.Sealed, make([]byte, job.MaxSecretBytes+256)...) },
		"no name":                    func(c *PutSecret) { c.Name = "" },
		"a name with a slash":        func(c *PutSecret) { c.Name = "a/b" },
		"a namespace that is none":   func(c *PutSecret) { c.Namespace = "A b" },
		"a host that is none":        func(c *PutSecret) { c.Hosts = []string{"https://x"} },
		"too many hosts":             func(c *PutSecret) { c.Hosts = make([]string, job.MaxSecretHosts+1) },
		"a long name of its setter":  func(c *PutSecret) { c.SetBy = strings.Repeat("x", job.MaxName+1) },
	} {
		t.Run(name, func(t *testing.T) { w.unchanged(CodeRefused, putSecret("s", 1, change)) })
	}
}

func TestSecretsAreBounded(t *testing.T) {
	w := newWorld(t)
	b, err := w.st.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxSecrets {
		k := store.SecretKey{Namespace: "team-a", Name: fmt.Sprint("s", i)}
		if err := b.PutSecret(k, &store.Secret{Version: 1, Sealed: sealedBytes}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	w.unchanged(CodeRefused, putSecret("one-more", 1))
	w.want(CodeOK, putSecret("s0", 2))
	w.want(CodeOK, &DeleteSecret{Namespace: "team-a", Name: "s1"})
	w.want(CodeOK, putSecret("one-more", 1))
}

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

func tokenRow(name string, change ...func(*store.Token)) store.Token {
	t := keys.NewToken(keys.APIToken, keys.Hash{})
	sum := t.Sum()
	row := store.Token{ID: t.ID, Name: name, Sum: sum[:], Role: string(job.RoleOperator)}
	for _, f := range change {
		f(&row)
	}
	return row
}

func TestTokensAreCreatedAndRevoked(t *testing.T) {
	w := newWorld(t)
	row := tokenRow("ci", func(r *store.Token) {
		r.CreatedBy, r.CreatedAt, r.RevokedAt, r.Suspended = "root", 7, 7, true // what apply sets is apply's
		r.ExpiresAt = T(100)
	})
	cmd := &CreateToken{Request: Request{ID: "k:1", Fingerprint: 1, Expires: T(1000)}, Token: row}
	if o := w.want(CodeOK, cmd); o.Text != row.ID {
		t.Errorf("%+v", o)
	}
	got, ok := w.st.Token(row.ID)
	if !ok || got.CreatedAt != w.now || got.RevokedAt != 0 || got.Suspended || got.CreatedBy != "root" ||
		!bytes.Equal(got.Sum, row.Sum) || !got.Usable(T(99)) || got.Usable(T(100)) {
		t.Fatalf("%+v", got)
	}
	w.unchanged(CodeOK, &CreateToken{Request: cmd.Request, Token: tokenRow("ci")}) // a repetition
	w.unchanged(CodeRefused, &CreateToken{Token: row})
	w.unchanged(CodeDuplicate, &CreateToken{Token: tokenRow("ci")})
	w.unchanged(CodeNotFound, &RevokeToken{ID: "aaaaaaaaaaaa"})

	w.now += 1000
	w.want(CodeOK, &RevokeToken{ID: row.ID, By: "root"})
	if got, _ := w.st.Token(row.ID); got.RevokedAt != w.now || got.RevokedBy != "root" || got.Usable(w.now) {
		t.Errorf("%+v", got)
	}
	w.now += 1000
	w.unchanged(CodeOK, &RevokeToken{ID: row.ID, By: "another"})
	w.want(CodeOK, &CreateToken{Token: tokenRow("ci")}) // the name is free again

	// They come back with the file.
	before := w.st.Tokens()
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if after := w.st.Tokens(); len(after) != 2 || len(before) != 2 || after[0].RevokedAt != before[0].RevokedAt ||
		after[1].ID != before[1].ID {
		t.Errorf("%+v", after)
	}
	if problems, _, err := w.st.Check(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*store.Token){
		"id":        func(r *store.Token) { r.ID = "A" },
		"sum":       func(r *store.Token) { r.Sum = r.Sum[1:] },
		"no name":   func(r *store.Token) { r.Name = "" },
		"control":   func(r *store.Token) { r.Name = "a\x1b[2J" },
		"long name": func(r *store.Token) { r.Name = strings.Repeat("x", job.MaxName+1) },
		"role":      func(r *store.Token) { r.Role = "root" },
		"namespace": func(r *store.Token) { r.Namespace = strings.Repeat("x", job.MaxName+1) },
		"expiry":    func(r *store.Token) { r.ExpiresAt = -1 },
		"slots":     func(r *store.Token) { r.Worker.Slots = 1 },
		"queue":     func(r *store.Token) { r.Role, r.Worker.Queues = "worker", []string{""} },
		"tags":      func(r *store.Token) { r.Role, r.Worker.Tags = "worker", map[string]string{"": "x"} },
		"negative":  func(r *store.Token) { r.Role, r.Worker.Slots = "worker", -1 },
		"too many":  func(r *store.Token) { r.Role, r.Worker.Types = "worker", make([]string, maxGrant+1) },
	} {
		if o := w.one(&CreateToken{Token: tokenRow("x", change)}); o.Code != CodeRefused || o.Text == "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if n := len(w.st.Tokens()); n != 0 {
		t.Errorf("%d tokens", n)
	}
}

// The number of tokens is bounded; those that are not valid make room, the one first that ended first.
func TestTokensAreBounded(t *testing.T) {
	w := newWorld(t)
	revoked, expired := tokenRow("revoked"), tokenRow("expired", func(r *store.Token) { r.ExpiresAt = T(5) })
	w.want(CodeOK, &CreateToken{Token: revoked})
	w.want(CodeOK, &CreateToken{Token: expired})
	b, err := w.st.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := 2; i < MaxTokens; i++ {
		if err := b.PutToken(tokenRow(fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	w.unchanged(CodeRefused, &CreateToken{Token: tokenRow("more")})
	w.now = T(10)
	w.want(CodeOK, &RevokeToken{ID: revoked.ID})
	w.want(CodeOK, &CreateToken{Token: tokenRow("more")})
	if _, ok := w.st.Token(expired.ID); ok {
		t.Error("the expired token is still there")
	}
	w.want(CodeOK, &CreateToken{Token: tokenRow("and more")})
	if _, ok := w.st.Token(revoked.ID); ok {
		t.Error("the revoked token is still there")
	}
	w.unchanged(CodeRefused, &CreateToken{Token: tokenRow("too many")})
	if n := len(w.st.Tokens()); n != MaxTokens {
		t.Errorf("%d tokens", n)
	}
}

// The first token comes with the cluster, or neither does.
func TestInitMakesTheFirstToken(t *testing.T) {
	w := newWorld(t)
	w.unchanged(CodeRefused, &Init{ClusterID: "c", Admin: store.Token{ID: "damaged"}})
	row := tokenRow("admin", func(r *store.Token) { r.Role = string(job.RoleAdmin) })
	w.want(CodeOK, &Init{ClusterID: "c", Admin: row})
	if got, ok := w.st.Token(row.ID); !ok || got.Role != "admin" || w.st.Info().ClusterID != "c" {
		t.Errorf("%+v, %+v", got, w.st.Info())
	}
	w.unchanged(CodeRefused, &Init{ClusterID: "d", Admin: tokenRow("second")})
}

// A token that a restore suspended is resumed; one that was revoked is not, nor one whose name is in use again.
func TestTokenIsResumed(t *testing.T) {
	w := secureWorld(t)
	put := func(id, name string, suspended bool, revoked int64) {
		b, err := w.st.Begin()
		if err != nil {
			t.Fatal(err)
		}
		sum := keys.NewToken(keys.APIToken, keys.Hash{1}).Sum()
		if err := b.PutToken(store.Token{ID: id, Name: name, Sum: sum[:], Role: "viewer", CreatedAt: 1,
			Suspended: suspended, RevokedAt: revoked}); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	put("aaaaaaaaaaab", "ci", true, 0)
	put("aaaaaaaaaaac", "gone", false, 5)
	put("aaaaaaaaaaad", "taken", true, 0)
	put("aaaaaaaaaaae", "taken", false, 0)
	w.unchanged(CodeNotFound, &ResumeToken{ID: "aaaaaaaaaaaz"})
	w.unchanged(CodeRefused, &ResumeToken{ID: "aaaaaaaaaaac"})
	w.unchanged(CodeDuplicate, &ResumeToken{ID: "aaaaaaaaaaad"})
	w.want(CodeOK, &ResumeToken{ID: "aaaaaaaaaaab"})
	w.unchanged(CodeOK, &ResumeToken{ID: "aaaaaaaaaaab"})
	if row, ok := w.st.Token("aaaaaaaaaaab"); !ok || !row.Usable(w.now) {
		t.Errorf("%+v", row)
	}
	if row, ok := w.st.Token("aaaaaaaaaaac"); !ok || row.Usable(w.now) {
		t.Errorf("%+v", row)
	}
}

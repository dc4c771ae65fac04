package sealer

import (
	"strings"
	"testing"
)

// What was sealed opens for the same token, use and text only, also after the key was replaced, until it is forgotten.
func TestSeals(t *testing.T) {
	old, next := []byte("old"), []byte("new")
	s := &Sealer{Keys: [][]byte{old}, Token: "t1"}
	sealed := s.Put("claim", "a.b")
	for name, c := range map[string]struct {
		by   Sealer
		what string
		text string
		ok   bool
	}{
		"the same":             {*s, "claim", sealed, true},
		"after a rotation":     {Sealer{[][]byte{next, old}, "t1"}, "claim", sealed, true},
		"when it is forgotten": {Sealer{[][]byte{next}, "t1"}, "claim", sealed, false},
		"of another token":     {Sealer{[][]byte{old}, "t2"}, "claim", sealed, false},
		"for another use":      {*s, "receipt", sealed, false},
		"with another text":    {*s, "claim", "x" + sealed, false},
		"without a seal":       {*s, "claim", "a", false},
		"of nothing":           {*s, "claim", "", false},
	} {
		if text, ok := c.by.Open(c.what, c.text); ok != c.ok || ok && text != "a.b" {
			t.Errorf("%s: %q, %v", name, text, ok)
		}
	}
	if by := (&Sealer{[][]byte{next, old}, "t1"}); by.Put("claim", "a.b") == sealed {
		t.Error("the key that was replaced still seals")
	}
	if s.Of("session", "a", "bc") == s.Of("session", "ab", "c") {
		t.Error("parts run together")
	}
}

// What was hidden is shown for the same token and use only, also after the key was replaced, and looks like nothing.
func TestHides(t *testing.T) {
	old, next := []byte("old"), []byte("new")
	s := &Sealer{Keys: [][]byte{old}, Token: "t1"}
	hidden := s.Hide("cursor", "j_7")
	if strings.Contains(hidden, "j_7") || hidden == s.Hide("cursor", "j_7") {
		t.Errorf("%q tells something", hidden)
	}
	for name, c := range map[string]struct {
		by   Sealer
		what string
		text string
		ok   bool
	}{
		"the same":             {*s, "cursor", hidden, true},
		"after a rotation":     {Sealer{[][]byte{next, old}, "t1"}, "cursor", hidden, true},
		"when it is forgotten": {Sealer{[][]byte{next}, "t1"}, "cursor", hidden, false},
		"of another token":     {Sealer{[][]byte{old}, "t2"}, "cursor", hidden, false},
		"for another use":      {*s, "claim", hidden, false},
		"a part of it":         {*s, "cursor", hidden[4:], false},
		"too short":            {*s, "cursor", hidden[:4], false},
		"no base64":            {*s, "cursor", "!" + hidden, false},
		"nothing":              {*s, "cursor", "", false},
	} {
		if text, ok := c.by.Show(c.what, c.text); ok != c.ok || ok && text != "j_7" {
			t.Errorf("%s: %q, %v", name, text, ok)
		}
	}
}

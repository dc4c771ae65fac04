package job

import (
	"strings"
	"testing"
)

func TestNamespaceNames(t *testing.T) {
	for _, good := range []string{"default", "a", "0", "team-a", "a--b", strings.Repeat("x", MaxNamespace)} {
		if !NamespaceName(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "*", "-", "-a", "a-", "A", "a_b", "a.b", "a/b", "a b", "ä", "a\x00b", "a\n",
		strings.Repeat("x", MaxNamespace+1)} {
		if NamespaceName(bad) {
			t.Errorf("%q is taken", bad)
		}
		s := good(nil)
		s.Namespace = bad
		if e, ok := s.Validate().(*Error); !ok || e.Code != CodeInvalid || e.Field != "namespace" || e.Remedy == "" {
			t.Errorf("%q: %v", bad, e)
		}
	}
	if k := (QueueKey{"team-a", "mail"}).String(); k != "team-a/mail" {
		t.Error(k)
	}
	if k := (QueueKey{DefaultNamespace, "mail"}).String(); k != "mail" {
		t.Error(k)
	}
}

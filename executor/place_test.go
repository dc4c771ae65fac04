//go:build linux

package executor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func secretIn(t *testing.T, dir string) string {
	t.Helper()
	s, err := SealedSecret(dir)
	if err != nil || s == "" {
		t.Fatal(s, err)
	}
	return s
}

// The secret stays with its directory: the next process there has it, and no copy does.
func TestSecretStaysWithItsDirectory(t *testing.T) {
	root := t.TempDir()
	dir, copied, moved := filepath.Join(root, "w"), filepath.Join(root, "copy"), filepath.Join(root, "moved")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := PlaceOf(dir); !ok {
		t.Skip("this file system does not tell when a directory was made")
	}
	first := secretIn(t, dir)
	if again := secretIn(t, dir); again != first {
		t.Errorf("a restart has another secret")
	}
	if out, err := exec.Command("cp", "-a", dir, copied).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	other := secretIn(t, copied)
	if other == first {
		t.Errorf("a copy has the same secret")
	}
	if again := secretIn(t, copied); again != other {
		t.Errorf("the copy does not keep its own")
	}
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if secretIn(t, moved) != first {
		t.Errorf("a directory with another name has another secret")
	}
	// The copy in the place of the original is a copy all the same.
	if out, err := exec.Command("cp", "-a", moved, dir).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if secretIn(t, dir) == first {
		t.Errorf("a copy under the name of the original has its secret")
	}
}

// A secret of another boot or of another PID namespace proves nothing here.
func TestSecretStaysWithItsBoot(t *testing.T) {
	dir := t.TempDir()
	here, ok := PlaceOf(dir)
	if !ok {
		t.Skip("this file system does not tell when a directory was made")
	}
	for name, change := range map[string]func(*Place){
		"boot":      func(p *Place) { p.Boot = "another" },
		"namespace": func(p *Place) { p.PIDs = "another" },
		"birth":     func(p *Place) { p.Birth-- },
	} {
		there := here
		change(&there)
		data, err := json.Marshal(sealedSecret{"s", there})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fileSecret), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if secretIn(t, dir) == "s" {
			t.Errorf("the secret of another %s is used", name)
		}
	}
}

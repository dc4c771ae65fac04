package main

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdFence   = regexp.MustCompile("(?ms)^```.*?^```")
	mdCode    = regexp.MustCompile("`[^`\n]+`")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug   = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// documents are the Markdown files of the tree.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path == ".git" {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d documents: %v", len(paths), err)
	}
	return paths
}

// anchors are the fragments under which GitHub serves the headings of a document.
func anchors(text string) map[string]bool {
	set := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1) {
		set[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return set
}

// A reader who follows a link finds the file, and the section where the link names one.
func TestDocumentLinksResolve(t *testing.T) {
	links := 0
	for _, path := range documents(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		prose := mdCode.ReplaceAllString(mdFence.ReplaceAllString(string(data), ""), "")
		for _, m := range mdLink.FindAllStringSubmatch(prose, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if u.Scheme != "" {
				continue // other sites are not asked
			}
			links++
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path))
			}
			text, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
				continue
			}
			if u.Fragment != "" && !anchors(string(text))[u.Fragment] {
				t.Errorf("%s links to %s, which has no such heading", path, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were looked at", links)
	}
}

var glossaryTerm = regexp.MustCompile(`\*\*([^*]+)\*\*`)

// A word has one meaning: the glossary defines each term once, also those that it explains beside another.
func TestDocumentedTermsAreDefinedOnce(t *testing.T) {
	data, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]int{}
	for i, line := range strings.Split(string(data), "\n") {
		for _, m := range glossaryTerm.FindAllStringSubmatch(line, -1) {
			term := strings.ToLower(m[1])
			if first := defined[term]; first != 0 {
				t.Errorf("docs/glossary.md:%d defines %q, and so does line %d", i+1, term, first)
			}
			defined[term] = i + 1
		}
	}
	if len(defined) < 50 {
		t.Errorf("only %d terms were looked at", len(defined))
	}
}

var (
	commentLine = regexp.MustCompile(`(?m)//.*$`)
	citedFile   = regexp.MustCompile(`[\w/.-]*\w+\.md\b`)
	citedPart   = regexp.MustCompile(`(?i)\b(pitfalls? \d|requirements? [A-Z]?\d|design §|§ ?\d)`)
)

// What a comment or a document cites is in the tree: a reader can look it up.
func TestNothingOutsideTheTreeIsCited(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "docs_test.go" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var texts []string
		switch filepath.Ext(path) {
		case ".go":
			texts = commentLine.FindAllString(string(data), -1)
		case ".md":
			texts = strings.Split(mdFence.ReplaceAllString(string(data), ""), "\n")
		}
		for _, text := range texts {
			if m := citedPart.FindString(text); m != "" {
				t.Errorf("%s cites %q: write the reason itself", path, m)
			}
			for _, name := range citedFile.FindAllString(text, -1) { // DESIGN.md alone is that of the package in question
				if name != "DESIGN.md" && !exists(name) && !exists(filepath.Join(filepath.Dir(path), name)) {
					t.Errorf("%s cites %s, which is not in the tree", path, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unpublished is how something would be got that is published with the first release.
var unpublished = regexp.MustCompile(`ghcr\.io/|go install \S*carillon|@latest|(?:apt|apt-get|dnf|yum) install \S*carillon|` +
	`brew (?:install|tap)|docker (?:pull|run) \S*carillon|helm repo|oci://|(?:pip|npm) install`)

// Nothing is published yet. A section that tells a reader to get something says that it comes with the first release.
func TestUnpublishedIsMarked(t *testing.T) {
	marked := 0
	for _, path := range documents(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for section := range strings.SplitSeq("\n"+string(data), "\n#") {
			m := unpublished.FindString(section)
			if m == "" {
				continue
			}
			if marked++; !strings.Contains(strings.Join(strings.Fields(section), " "), "first release") {
				title, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s: the section %q says %q as if it were published; say what comes with the first release",
					path, strings.Trim(title, "# "), m)
			}
		}
	}
	if marked < 2 {
		t.Errorf("%d sections are about what is published: has the pattern gone stale?", marked)
	}
}

func exists(path string) bool {
	_, err := os.Stat(filepath.FromSlash(path))
	return err == nil
}

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

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tree is what the names in a document can mean.
type tree struct {
	paths    []string                   // of all files, with slashes
	dirs     map[string]bool            // paths of directories
	dirNames map[string]bool            // their last elements: packages, and what they are called
	packages map[string][]*goPackage    // by name
	imported map[string]bool            // names of packages that are imported and not in the tree
	words    map[string]map[string]bool // by file: identifiers of Go files, every word of scripts and of the page's code
	caps     map[string]bool            // words in capitals in literals of Go files
	values   map[string]bool            // what the code, not its tests, has as a literal or as a JSON field
}

// goPackage is what a package declares, or its tests do.
type goPackage struct {
	dir     string
	tests   bool
	names   map[string]bool                // top-level names and methods
	members map[string]map[string]bool     // by type: methods and fields
	inside  map[string]map[string]ast.Expr // by type: what it embeds, or is another name of
}

var (
	anyWord  = regexp.MustCompile(`[A-Za-z_]\w*`)
	capital  = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*\b`)
	oneValue = regexp.MustCompile(`^[\w./-]+$`)
	tagName  = regexp.MustCompile(`(?:json|codec|enum|default):"([^",]*)`)
	property = regexp.MustCompile(`"(\w+)"`)
)

var theTree = sync.OnceValues(readTree)

func readTree() (*tree, error) {
	tr := &tree{dirs: map[string]bool{}, dirNames: map[string]bool{}, packages: map[string][]*goPackage{},
		imported: map[string]bool{}, words: map[string]map[string]bool{}, caps: map[string]bool{}, values: map[string]bool{}}
	byDir, files := map[string]*goPackage{}, token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "web/vendor"):
			return fs.SkipDir
		case d.IsDir():
			tr.dirs[name], tr.dirNames[d.Name()] = true, true
			return nil
		}
		tr.paths = append(tr.paths, name)
		if name == "docnames_test.go" { // it has names that are gone
			return nil
		}
		switch ext := path.Ext(name); {
		case ext == ".go":
			f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			dir, in, tests := path.Dir(name), strings.TrimSuffix(f.Name.Name, "_test"), strings.HasSuffix(name, "_test.go")
			key := fmt.Sprint(dir, in, tests)
			p := byDir[key]
			if p == nil {
				p = &goPackage{dir, tests, map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]ast.Expr{}}
				byDir[key] = p
				tr.packages[in] = append(tr.packages[in], p)
			}
			tr.read(p, name, f)
		case ext == ".js" || path.Dir(name) == ".ci" || name == "api/openapi.json":
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if ext == ".json" {
				for _, m := range property.FindAllStringSubmatch(string(data), -1) {
					tr.values[m[1]] = true
				}
				return nil
			}
			tr.words[name] = map[string]bool{}
			for _, w := range anyWord.FindAllString(string(data), -1) {
				tr.words[name][w] = true
			}
		}
		return nil
	})
	for name := range tr.packages {
		delete(tr.imported, name)
	}
	return tr, err
}

// read adds a Go file. Comments are not read: one may name what is gone.
func (tr *tree) read(p *goPackage, name string, f *ast.File) {
	words := map[string]bool{}
	tr.words[name] = words
	for _, im := range f.Imports {
		at, _ := strconv.Unquote(im.Path.Value)
		elements := strings.Split(at, "/")
		for _, e := range elements[max(0, len(elements)-2):] { // the last may be a version
			tr.imported[e] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			words[n.Name] = true
		case *ast.Field: // of a struct or an interface; parameters do no harm
			if n.Tag != nil {
				for _, m := range tagName.FindAllStringSubmatch(n.Tag.Value, -1) {
					tr.values[m[1]] = true
				}
			}
		case *ast.BasicLit:
			for _, w := range capital.FindAllString(n.Value, -1) {
				tr.caps[w] = true
			}
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !p.tests && oneValue.MatchString(text) {
				tr.values[text] = true
			}
		}
		return true
	})
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			p.names[d.Name.Name] = true
			if d.Recv != nil && len(d.Recv.List) == 1 {
				p.member(lastName(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						p.names[id.Name] = true
					}
				case *ast.TypeSpec:
					p.names[s.Name.Name] = true
					p.declare(s.Name.Name, s.Type)
				}
			}
		}
	}
}

func (p *goPackage) member(of, name string) {
	if p.members[of] == nil {
		p.members[of] = map[string]bool{}
	}
	p.members[of][name] = true
}

func (p *goPackage) declare(name string, is ast.Expr) {
	p.inside[name] = map[string]ast.Expr{}
	var fields *ast.FieldList
	switch is := is.(type) {
	case *ast.StructType:
		fields = is.Fields
	case *ast.InterfaceType:
		fields = is.Methods
	default: // another name of a type, or made of one
		p.inside[name][lastName(is)] = is
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			p.member(name, id.Name)
		}
		if len(f.Names) == 0 {
			p.member(name, lastName(f.Type))
			p.inside[name][lastName(f.Type)] = f.Type
		}
	}
}

// lastName is what a type is called, without its package.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return lastName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return lastName(e.X)
	case *ast.IndexListExpr:
		return lastName(e.X)
	}
	return ""
}

// below says whether a path is that of a directory or in it.
func below(dir, name string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

// ofTheProduct leaves tests out: what only they have, other packages cannot name.
func ofTheProduct(p *goPackage) bool { return !p.tests }

// hasMember says whether one of the types of that name, in the packages that count, has the member. A type that embeds
// one of another module may have anything.
func (tr *tree) hasMember(counts func(*goPackage) bool, name, member string, depth int) (known, has bool) {
	for _, same := range tr.packages {
		for _, p := range same {
			inside, ok := p.inside[name]
			if !ok || !counts(p) {
				continue
			}
			known = true
			if p.members[name][member] {
				return true, true
			}
			for in := range inside {
				if depth == 0 {
					break
				}
				if k, h := tr.hasMember(ofTheProduct, in, member, depth-1); h || !k && in != "" {
					return true, true
				}
			}
		}
	}
	return known, false
}

var (
	namedFile = regexp.MustCompile(`^[\w./*-]+\.go$`)
	namedPath = regexp.MustCompile(`^([\w-]+)/[\w./-]*$`)
	namedWord = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	namedIn   = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)
	withRest  = regexp.MustCompile(`^\*?([A-Za-z_][\w.]*\w)[({].*[)}]$`) // a call, or a literal of a type
	wildcard  = regexp.MustCompile(`\b[A-Z]{2,}\b`)                      // NAME in a path stands for any
)

// resolves says whether what a document in dir has in backticks exists. A text that has not the form of a name of Go, a
// file or a directory, such as a command, a flag, a route or a header, is not looked at, and neither are names in
// packages of other modules.
func (tr *tree) resolves(dir, text string) bool {
	if m := withRest.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	text = strings.TrimPrefix(text, "*")
	switch {
	case namedFile.MatchString(text):
		return tr.isPath(dir, text)
	case namedPath.MatchString(text):
		first, _, _ := strings.Cut(text, "/")
		if !strings.HasSuffix(text, "/") && !tr.dirs[first] && !tr.dirs[path.Join(dir, first)] {
			return true // not of this tree: a package of the standard library, a file of a data directory
		}
		return tr.isPath(dir, text) || strings.HasSuffix(text, "/") && tr.values[path.Base(text)]
	case namedIn.MatchString(text):
		return tr.isName(dir, strings.Split(text, ".")) || tr.values[text] || tr.isPath(dir, text)
	case !namedWord.MatchString(text):
		return true
	}
	own := func(name string) bool { return below(dir, name) }
	switch {
	case tr.values[text] || tr.dirNames[text] || token.IsKeyword(text) || tr.has(own, text):
		return true
	case strings.ToUpper(text) == text:
		return tr.caps[text]
	case strings.ToLower(text[:1]) != text[:1]: // exported: it may be that of another package
		return tr.has(func(name string) bool { return !strings.HasSuffix(name, "_test.go") }, text)
	}
	return false
}

func (tr *tree) has(in func(file string) bool, word string) bool {
	for file, words := range tr.words {
		if words[word] && in(file) {
			return true
		}
	}
	return false
}

// isPath says whether a file or directory is there, as it is written or anywhere below the document's directory.
func (tr *tree) isPath(dir, name string) bool {
	name = wildcard.ReplaceAllString(strings.TrimSuffix(name, "/"), "*")
	match := func(at string) bool {
		for _, pattern := range []string{name, path.Join(dir, name)} {
			if ok, _ := path.Match(pattern, at); ok {
				return true
			}
		}
		if !below(dir, at) {
			return false
		}
		tail := strings.Split(at, "/")
		ok, _ := path.Match(name, strings.Join(tail[max(0, len(tail)-1-strings.Count(name, "/")):], "/"))
		return ok
	}
	for _, at := range tr.paths {
		if match(at) {
			return true
		}
	}
	for at := range tr.dirs {
		if match(at) {
			return true
		}
	}
	return false
}

// isName resolves package.Name, package.TestName, package.Type.Member and Type.Member.
func (tr *tree) isName(dir string, parts []string) bool {
	for _, p := range tr.packages[parts[0]] {
		if p.tests && !strings.HasPrefix(parts[1], "Test") {
			continue
		}
		if len(parts) == 2 && p.names[parts[1]] {
			return true
		}
		if len(parts) == 3 {
			if _, has := tr.hasMember(func(q *goPackage) bool { return q == p }, parts[1], parts[2], 3); has {
				return true
			}
		}
	}
	if tr.imported[parts[0]] {
		return true
	}
	if len(parts) != 2 {
		return false
	}
	known, has := tr.hasMember(func(p *goPackage) bool { return below(dir, p.dir) }, parts[0], parts[1], 3)
	if !known && dir != "." {
		_, has = tr.hasMember(ofTheProduct, parts[0], parts[1], 3)
	}
	return has
}

// named are the texts in backticks of a document, with the number of their line.
func named(text string, yield func(line int, name string)) {
	fence := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	for i, line := range strings.Split(mdFence.ReplaceAllStringFunc(text, fence), "\n") {
		for _, span := range mdCode.FindAllString(line, -1) {
			yield(i+1, strings.Trim(span, "`"))
		}
	}
}

// Who reads how a package is made finds the names in the code: documents are mended with what they describe.
func TestDocumentNamesResolve(t *testing.T) {
	tr, err := theTree()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range documents(t) {
		dir := path.Dir(filepath.ToSlash(name))
		switch filepath.ToSlash(name) {
		case "docs/architecture.md", "CONTRIBUTING.md":
			dir = "." // about the whole tree
		default:
			if filepath.Base(name) != "DESIGN.md" {
				continue
			}
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		named(string(data), func(line int, text string) {
			seen++
			if !tr.resolves(dir, text) {
				t.Errorf("%s:%d names `%s`, which is not in the tree", name, line, text)
			}
		})
	}
	if seen < 500 {
		t.Errorf("only %d names were looked at", seen)
	}
}

// The test above sees a name that is gone, of every form, and lets through what is no name of the tree.
func TestDocumentNamesThatAreGone(t *testing.T) {
	tr, err := theTree()
	if err != nil {
		t.Fatal(err)
	}
	for dir, texts := range map[string][]string{
		"node/service": {"api.Realm", "batchers", "Batcher.flush", "service.Planner", "store.Token.Colour", "applier.go"},
		"node/forward": {"echo", "Tracker.Gone", "forward/nowhere.go", "Forgotten()", "Forgotten{List}", "nowhere/"},
		"wheel":        {"wheel.New", "Wheel.Spin", "wheel/slots", "node/nothing"},
		".":            {"NoSuchThing", "noSuchThing", "NO_SUCH_THING", "job.Spec.Nothing", "proof/nothing_test.go", "node.TestNothingAtAll"},
	} {
		for _, text := range texts {
			if tr.resolves(dir, text) {
				t.Errorf("in %s, `%s` is taken for a name that is there", dir, text)
			}
		}
	}
	for dir, texts := range map[string][]string{
		"node/service": {"batcher", "api.Request", "net.Dialer.ControlContext", "raft.Apply", "node.json", "names.go",
			"other_group", "--cluster", "GET /jobs", "carillon check DIR", "Carillon-Group", "next_run_at", "/internal/"},
		"scheduler": {"Scheduler.mu", "stamp.Stamper.mu", "decide", "max_runs", "claim.go", "scheduler/decide", "http/1.1"},
		".":         {"api/apitest/api_test.go", "job.Spec.Class", "docs/", "executor/NAME.go", "FLAKY", "job.Spec"},
	} {
		for _, text := range texts {
			if !tr.resolves(dir, text) {
				t.Errorf("in %s, `%s` is taken for a name that is gone", dir, text)
			}
		}
	}
}

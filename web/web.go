// Package web is the page that every node serves under /ui/. It has no data of its own: scripts in the browser ask the
// API for it, with the token of who reads. What is in the tree is what runs; nothing is built.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed index.html app css vendor/*.js vendor/LICENSES.txt
var files embed.FS

const (
	// Path is where the page is; everything below belongs to it.
	Path = "/ui/"
	// assets is where its files are, in a directory that is named by what they contain: an answer from there never
	// changes, and scripts of two versions never meet on one page.
	assets = Path + "v/"
)

// policy allows the page its own scripts, styles and requests and nothing else. Names, errors and output come from
// those who write jobs: what would become markup by mistake does not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

// file is an embedded file as it is sent.
type file struct {
	media         string
	plain, zipped []byte
}

type page struct {
	version string
	index   file
	files   map[string]file // by their paths in the tree
}

// load compresses everything once: some 400 KB, when the page is first asked for.
var load = sync.OnceValue(func() *page {
	p := &page{files: map[string]file{}}
	sum := sha256.New()
	var index []byte
	// What is embedded can be read; the walk is in lexical order.
	_ = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum.Write([]byte(name + "\x00" + strconv.Itoa(len(data)) + "\x00"))
		sum.Write(data)
		if name == "index.html" {
			index = data
			return nil
		}
		p.files[name] = pack(name, data)
		return nil
	})
	p.version = hex.EncodeToString(sum.Sum(nil))[:16]
	base := assets + p.version
	text := strings.NewReplacer("{{base}}", base, "{{preload}}", preload(p.files, base)).Replace(string(index))
	p.index = pack("index.html", []byte(text))
	return p
})

// preload has the browser fetch the modules that every view needs at once, instead of finding them one import after the
// other. Views and the chart are fetched when they are opened.
func preload(all map[string]file, base string) string {
	var names []string
	for name := range all {
		dir := path.Dir(name)
		if path.Ext(name) == ".js" && (dir == "app" || dir == "vendor") && path.Base(name) != "theme.js" &&
			path.Base(name) != "uplot.js" || name == "app/parts/icons.js" || name == "app/parts/bits.js" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(`<link rel="modulepreload" href="` + base + "/" + name + `">` + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// media are the types of files that there are. Not by the system's table, which differs between machines.
var media = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}

func pack(name string, data []byte) file {
	var buf bytes.Buffer
	w, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression) // the level is a valid one
	_, _ = w.Write(data)                                    // into memory
	_ = w.Close()
	return file{media: media[path.Ext(name)], plain: data, zipped: buf.Bytes()}
}

// Serves says whether a request is for the page. A request that reads the root is, whoever asks.
func Serves(r *http.Request) bool {
	switch {
	case r.URL.Path == "/":
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	case r.URL.Path+"/" == Path:
		return true
	}
	return strings.HasPrefix(r.URL.Path, Path)
}

// Serve answers what Serves says.
func Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read with GET", http.StatusMethodNotAllowed)
		return
	}
	if !strings.HasPrefix(r.URL.Path, Path) { // the root, or /ui
		const text = "The page is at " + Path + ", the API at /api/v1/.\n"
		h.Set("Location", Path)
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(http.StatusFound)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, text)
		}
		return
	}
	p := load()
	rest, ok := strings.CutPrefix(r.URL.Path, assets)
	if !ok {
		// Every other path is a view, which the scripts know; a link to one is opened from outside too.
		h.Set("Cache-Control", "no-cache")
		send(w, r, p.index, `"`+p.version+`"`)
		return
	}
	version, name, _ := strings.Cut(rest, "/")
	f, ok := p.files[name]
	if !ok || version != p.version {
		// Not the file of this version: a browser would keep it for the other one's.
		http.Error(w, "there is no such file in this version; reload the page", http.StatusNotFound)
		return
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	send(w, r, f, `"`+version+`"`)
}

func send(w http.ResponseWriter, r *http.Request, f file, tag string) {
	h := w.Header()
	h.Set("Content-Type", f.media)
	h.Set("ETag", tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	data := f.plain
	if accepts(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = f.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(data) // a client that hung up wants nothing more
	}
}

// accepts says whether a list of codings has one that is not forbidden by q=0.
func accepts(header, coding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != coding {
			continue
		}
		_, q, _ := strings.Cut(params, "q=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err != nil || weight > 0
	}
	return false
}

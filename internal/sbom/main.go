// Command sbom writes what a binary of Go is made of, as a CycloneDX document: the modules with their versions and
// hashes, and the standard library. It is told by the binary itself, so that it is about that one and no other.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	doc, err := describe(info)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// document has no date and no random number: the same binary has the same one.
type document struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

func describe(info *debug.BuildInfo) (*document, error) {
	d := &document{Format: "CycloneDX", Spec: "1.5", Version: 1}
	d.Metadata.Component = named("application", info.Main.Path, info.Main.Version)
	d.Components = []component{named("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		for m.Replace != nil { // what is in the binary
			m = m.Replace
		}
		c := named("library", m.Path, m.Version)
		text, ok := strings.CutPrefix(m.Sum, "h1:")
		sum, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			return nil, fmt.Errorf("%s %s has no hash (%q): a module of this machine cannot be looked up elsewhere",
				m.Path, m.Version, m.Sum)
		}
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}} // of the module's files, as in go.sum
		d.Components = append(d.Components, c)
	}
	return d, nil
}

func named(kind, path, version string) component {
	purl := "pkg:golang/" + path
	if version != "" {
		purl += "@" + url.QueryEscape(version)
	}
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

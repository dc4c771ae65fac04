package output

import (
	"bytes"
	"io"
	"reflect"

	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// tableRows are measured together, and kept in memory for it. Of a longer list the rest is printed in the columns that
// these have.
const tableRows = 10_000

// Pages is a list that comes in pages, of which all are printed. T is a struct with one list in it, its first field,
// and a NextCursor.
type Pages[T any] struct {
	Choice *Choice
	W      io.Writer
	All    bool // over all namespaces
	// Next gets the page at a cursor, and as it came.
	Next func(cursor string) (T, []byte, error)
	// Human prints pages that were put together; more says that others follow.
	Human func(page T, more bool) error

	begun bool // something is printed
	some  bool // of it an element
	kept  T    // for people
}

// Print prints every page from a cursor on. JSON and YAML are one document, which is cut off if a page fails.
func (p *Pages[T]) Print(cursor string) error {
	for {
		page, raw, err := p.Next(cursor)
		if err != nil {
			return err
		}
		cursor = reflect.ValueOf(page).FieldByName("NextCursor").String()
		if err := p.page(page, raw, cursor == ""); err != nil || cursor == "" {
			return err
		}
	}
}

func (p *Pages[T]) page(page T, raw []byte, last bool) error {
	switch form := p.Choice.Form; {
	case form == FormJSON:
		return p.json(raw, last)
	case form == FormYAML:
		if files, ok := any(page).(jobPage); ok {
			_, err := p.Choice.Print(p.W, raw, files, p.All)
			return err
		}
		return p.yaml(raw, last)
	case form == FormName:
		return printNames(p.W, page, p.All)
	}
	kept, list := reflect.ValueOf(&p.kept).Elem(), reflect.ValueOf(page).Field(0)
	kept.Field(0).Set(reflect.AppendSlice(kept.Field(0), list))
	if kept.Field(0).Len() < tableRows && !last {
		return nil
	}
	if p.begun && kept.Field(0).Len() == 0 {
		return nil
	}
	err := p.Human(p.kept, !last)
	p.begun = true
	kept.SetZero()
	return err
}

// json writes the elements of a page as those of the one document that all pages are. Behind them is what the last page
// says, but how much was looked at for it alone.
func (p *Pages[T]) json(raw []byte, last bool) error {
	all, err := jsontext.Members(raw)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	items := bytes.TrimSpace(all[0].Value)
	if !p.begun {
		b.WriteString(`{"` + all[0].Key + `":[`)
		p.begun = true
	}
	if items = bytes.TrimSpace(items[1 : len(items)-1]); len(items) > 0 {
		if p.some {
			b.WriteByte(',')
		}
		p.some = true
		b.Write(items)
	}
	if last {
		b.WriteByte(']')
		for _, m := range all[1:] {
			if m.Key != "scanned" {
				b.WriteString(`,"` + m.Key + `":`)
				b.Write(m.Value)
			}
		}
		b.WriteString("}\n")
	}
	_, err = p.W.Write(b.Bytes())
	return err
}

// yaml writes the elements of a page below the one key that all pages have.
func (p *Pages[T]) yaml(raw []byte, last bool) error {
	all, err := jsontext.Members(raw)
	if err != nil {
		return err
	}
	text, err := jobfile.ToYAML([]byte(`{"` + all[0].Key + `":` + string(all[0].Value) + `}`))
	if err != nil {
		return err
	}
	switch empty := bytes.HasSuffix(text, []byte(": []\n")); {
	case empty && (p.some || !last): // a filter may leave nothing of a page
		return nil
	case p.some:
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	p.some = true
	_, err = p.W.Write(text)
	return err
}

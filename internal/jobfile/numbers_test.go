package jobfile

import (
	"strings"
	"testing"
)

// What becomes YAML for an editor and comes back has the numbers that it had, and what is text stays text.
func TestNumbersComeBack(t *testing.T) {
	const spec = `{"payload":{"big":18446744073709551616,"float":1234567890.123456789,"list":[-0.00000000000000000012345678901234567,9007199254740993,1.5],` +
		`"text":"18446744073709551616","zero":0.0,"lines":"18446744073709551616\n1\n","deep":{"x":[[100000000000000000000000000001]]}}}`
	text, err := ToYAML([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := Read(strings.NewReader(string(text)), "x")
	if err != nil || len(docs) != 1 {
		t.Fatal(len(docs), err)
	}
	sorted := `{"payload":{"big":18446744073709551616,"deep":{"x":[[100000000000000000000000000001]]},"float":1234567890.123456789,` +
		`"lines":"18446744073709551616\n1\n","list":[-0.00000000000000000012345678901234567,9007199254740993,1.5],"text":"18446744073709551616","zero":0}}`
	if string(docs[0].JSON) != sorted {
		t.Errorf("%s\nand not\n%s\nby\n%s", docs[0].JSON, sorted, text)
	}
	// Written by hand: what YAML has besides JSON is read as before.
	docs, err = Read(strings.NewReader("a: &x 1e3\nb: *x\nc: 0x1F\nd: 1_000\ne: 1e400\nf: .5\ng: !!str 1.0\nh: &y 18446744073709551616\ni: *y\nj: 1e999999999\n"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(docs[0].JSON); !strings.HasPrefix(got, `{"a":"1e3","b":"1e3","c":31,"d":1000,"e":"1e400",`) || !strings.Contains(got, `"h":18446744073709551616,"i":18446744073709551616`) {
		t.Error(got)
	}
}

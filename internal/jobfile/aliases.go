package jobfile

import (
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/carillon-scheduler/carillon/job"
)

// maxAliased bounds what the aliases of a file stand for, besides four times its size: an alias of an alias of an alias
// makes gigabytes of some hundred bytes.
const maxAliased = 1 << 20

// parse parses YAML whose aliases stand for a bounded amount.
func parse(data []byte, name string) (*ast.File, error) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, err
	}
	most := int64(maxAliased + 4*len(data))
	left := most
	for _, d := range file.Docs {
		a := aliases{anchors: map[string]int64{}, left: left, most: most}
		a.size(d.Body)
		if left = a.left; left < 0 {
			return nil, fmt.Errorf("%s:%d: %w", name, a.line,
				job.Errorf(job.CodeTooLarge, "write out what you need, or split the file",
					"the aliases up to here stand for more than %d bytes", most))
		}
	}
	return file, nil
}

// Unmarshal reads YAML, with bounded aliases and no unknown fields. name is the file's, for errors.
func Unmarshal(data []byte, name string, v any) error {
	if _, err := parse(data, name); err != nil {
		return err
	}
	return yaml.UnmarshalWithOptions(data, v, yaml.Strict())
}

// aliases adds up what the aliases of a document stand for, without making it.
type aliases struct {
	anchors map[string]int64 // the size of each so far, with its aliases written out
	left    int64            // below 0: it is too much
	most    int64
	line    int // of the alias that made it too much
}

// size is that of a node with its aliases written out, most+1 if it is more.
func (a *aliases) size(node ast.Node) int64 {
	if node == nil {
		return 0
	}
	const each = 16 // even an empty value takes memory
	n := int64(each)
	switch x := node.(type) {
	case *ast.MappingNode:
		for _, v := range x.Values {
			n += a.size(v)
		}
	case *ast.MappingValueNode:
		n += a.size(x.Key) + a.size(x.Value)
	case *ast.MappingKeyNode:
		n += a.size(x.Value)
	case *ast.SequenceNode:
		for _, v := range x.Values {
			n += a.size(v)
		}
	case *ast.TagNode:
		n += a.size(x.Value)
	case *ast.AnchorNode:
		n += a.size(x.Value)
		a.anchors[x.Name.String()] = min(n, a.most+1)
	case *ast.AliasNode:
		n += a.anchors[x.Value.String()] // 0 within the anchor itself, where the library has null
		if a.left >= 0 {
			if a.left -= n; a.left < 0 {
				a.line = x.GetToken().Position.Line
			}
		}
	case *ast.LiteralNode:
		n += a.size(x.Value)
	default:
		if t := node.GetToken(); t != nil {
			n += int64(len(t.Value))
		}
	}
	return min(n, a.most+1)
}

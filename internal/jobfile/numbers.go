package jobfile

import (
	"encoding/json"
	"math/big"
	"regexp"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// exactly has the numbers of a document become JSON as they are written. The library makes floats of those with a point
// and text of integers above 64 bits, and a payload is somebody else's: what a job is edited by must not change it.
func exactly(body ast.Node) ast.Node {
	ast.Walk(numbers{}, body)
	return exact(body)
}

type numbers struct{}

func (v numbers) Visit(node ast.Node) ast.Visitor {
	switch n := node.(type) {
	case *ast.MappingValueNode:
		n.Value = exact(n.Value)
	case *ast.SequenceNode:
		for i := range n.Values {
			n.Values[i] = exact(n.Values[i])
		}
	case *ast.AnchorNode:
		n.Value = exact(n.Value)
	}
	return v
}

// written is how JSON writes numbers. Longer exponents are no number that anybody means, and take long to compare.
var written = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)

// integer is one of any length.
var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// exact is a node that keeps a number which its own value does not.
func exact(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.FloatNode:
		if want, ok := number(n.Token); !ok || same(n.Value, want) {
			return node
		}
	case *ast.StringNode:
		if n.Token == nil || n.Token.Type != token.StringType || !integer.MatchString(n.Token.Value) {
			return node // in quotes, or text
		}
	default:
		return node
	}
	t := node.GetToken()
	return &ast.IntegerNode{BaseNode: &ast.BaseNode{}, Token: t, Value: json.Number(t.Value)}
}

func number(t *token.Token) (*big.Rat, bool) {
	if t == nil || !written.MatchString(t.Value) {
		return nil, false
	}
	return new(big.Rat).SetString(t.Value)
}

// same says that a float is written in JSON as the number that it was read from, as 0.1 is.
func same(value float64, want *big.Rat) bool {
	text, err := json.Marshal(value)
	if err != nil {
		return false
	}
	have, ok := new(big.Rat).SetString(string(text))
	return ok && have.Cmp(want) == 0
}

package executor

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Kind is a type of job with all that there is to it: its payload, the flags of `carillon submit` that describe it, and
// its runner. Each is registered in the file of its type or beside it; nothing else lists the types.
type Kind struct {
	job.Kind
	// Node says that the worker of a node can carry it out. Others need a setting that only `carillon worker` has.
	Node bool
	// Submit are the flags that choose this type. There are several if its jobs differ much.
	Submit []Choice
	// New makes the runner of a worker. What it holds is closed by t.OnClose.
	New func(t *Tools, o ToolsOptions) (Runner, error)
}

// Choice is a flag of `carillon submit` that says what the job does, and the flags that may be given with it.
type Choice struct {
	Flag
	With    []Flag
	Payload func(Input) (any, error)
}

// Flag is a flag of `carillon submit`. Types may share one.
type Flag struct {
	Name, Help string
	Form       Form
}

// Form is what a flag takes.
type Form uint8

// The forms.
const (
	Text   Form = iota
	List        // repeatable
	Switch      // no value
)

// Input is what was given, by the names of the flags.
type Input interface {
	Text(name string) string
	List(name string) []string
	On(name string) bool
	JSON(name string) (json.RawMessage, error)      // of a text: JSON, any other text as a string, or @FILE
	Pairs(name string) (map[string]string, error)   // of a list: k=v
	Headers(name string) (map[string]string, error) // of a list: Name: value
}

// Flags that several types have.
var (
	headerFlag = Flag{Name: "header", Form: List,
		Help: "header \"Name: value\" of an HTTP request or a message; repeatable"}
	dataFlag = Flag{Name: "data", Help: "data of a queue job or a message: JSON, text, or @FILE"}
)

var kinds []Kind // ordered by type; written while the package is initialized

// Register adds a type of job. It is called while packages are initialized.
func Register(k Kind) {
	if k.Type == "" || k.Check == nil || k.Schema == "" || k.New == nil {
		panic(errors.New("executor: a kind needs a type, a check, a schema and a runner"))
	}
	job.RegisterKind(k.Kind)
	i, _ := slices.BinarySearchFunc(kinds, k.Type, func(have Kind, t job.Type) int { return cmp.Compare(have.Type, t) })
	kinds = slices.Insert(kinds, i, k)
}

// Kinds are the types of job that this binary can carry out, ordered by name.
func Kinds() []Kind { return kinds }

// NodeTypes are the names of those that the worker of a node can carry out.
func NodeTypes() (names []string) {
	for _, k := range kinds {
		if k.Node {
			names = append(names, string(k.Type))
		}
	}
	return names
}

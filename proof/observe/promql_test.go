package observe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// selector is what an expression asks for: a metric, and what its labels have to be.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// promql is what an expression names. A parser of the language would bring a hundred modules into the build for what a
// few lines can tell: which words are metrics and which are labels.
type promql struct {
	selectors []selector
	labels    []string // that it groups or joins by
}

var (
	token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|\[[^]]*\]|[0-9][0-9a-zA-Z.]*|[a-zA-Z_:$][\w:$]*|` +
		`[=!<>]=|[=!]~|\S`)
	word = regexp.MustCompile(`^[a-zA-Z_:$]`)

	grouping = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	keywords = []string{"and", "or", "unless", "bool", "offset"}
)

func parsePromQL(expr string) (q promql, err error) {
	tokens := token.FindAllString(expr, -1)
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case !word.MatchString(t) && t != "{" || slices.Contains(keywords, t):
		case slices.Contains(grouping, t):
			if at(i+1) != "(" {
				return q, fmt.Errorf("no labels after %s in %s", t, expr)
			}
			for i += 2; at(i) != ")"; i++ {
				if i >= len(tokens) {
					return q, fmt.Errorf("a list of labels does not end in %s", expr)
				}
				if tokens[i] != "," {
					q.labels = append(q.labels, tokens[i])
				}
			}
		case t == "{":
			return q, fmt.Errorf("a selector without a metric in %s", expr)
		case at(i+1) == "{":
			s := selector{metric: t}
			for i += 2; at(i) != "}"; i++ {
				if at(i) == "," {
					continue
				}
				if i+2 >= len(tokens) {
					return q, fmt.Errorf("a selector does not end in %s", expr)
				}
				s.matchers = append(s.matchers, matcher{tokens[i], tokens[i+1], strings.Trim(tokens[i+2], `"'`)})
				i += 2
			}
			q.selectors = append(q.selectors, s)
		case at(i+1) == "(" || slices.Contains(grouping, at(i+1)) && at(i+2) == "(" && aggregates(t):
		default:
			q.selectors = append(q.selectors, selector{metric: t})
		}
	}
	return q, nil
}

func aggregates(word string) bool {
	return slices.Contains([]string{"sum", "min", "max", "avg", "count", "topk", "bottomk", "group", "quantile"}, word)
}

func TestParsePromQL(t *testing.T) {
	for expr, want := range map[string]string{
		`up`:                             `[{up []}] []`,
		`sum by (job, group) (a_b) == 0`: `[{a_b []}] [job group]`,
		`0 * max by (g) (max_over_time(x{r!="y",s=~"a|b"}[1h])) unless on (g) z offset 5m`: `[{x [{r != y} {s =~ a|b}]} ` +
			`{z []}] [g g]`,
		`histogram_quantile(0.99, sum by (le) (rate(b_bucket[$__rate_interval])))`: `[{b_bucket []}] [le]`,
		`a - on (job) group_right () b > 1.5e3`:                                    `[{a []} {b []}] [job]`,
		`r:a:sum{job="$job"} and 3 < c`:                                            `[{r:a:sum [{job = $job}]} {c []}] []`,
	} {
		q, err := parsePromQL(expr)
		if got := fmt.Sprint(q.selectors, " ", q.labels); err != nil || got != want {
			t.Errorf("%s: %s, %v; not %s", expr, got, err, want)
		}
	}
	for _, bad := range []string{`{job="a"}`, `sum by`, `x{a=`, `sum by (a`} {
		if q, err := parsePromQL(bad); err == nil {
			t.Errorf("%s is read as %v", bad, q)
		}
	}
}

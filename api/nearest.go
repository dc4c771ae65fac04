package api

import "strings"

// suggest names the known word nearest to a wrong one, or nothing if none is near: one letter in three may be wrong.
func suggest(word string, known []string) string {
	best, bestAt := "", min(4, (len(word)+1)/3+1)
	for _, k := range known {
		if d := distance(strings.ToLower(word), k, bestAt); d < bestAt {
			best, bestAt = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `; did you mean "` + best + `"?`
}

// distance is the Levenshtein distance, or limit if that is not below it. The wrong word comes from outside and may be
// long: it is not worth looking at when its length alone is too different.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

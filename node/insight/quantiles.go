package insight

import (
	"slices"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// QuantilesOf sorts the values. A quantile is one of them: the smallest that so many are not above.
func QuantilesOf(values []int64) (q wire.Quantiles) {
	n := len(values)
	if n == 0 {
		return q
	}
	slices.Sort(values)
	at := func(percent int) *int64 {
		v := values[(n*percent+99)/100-1]
		return &v
	}
	q.P50, q.P95, q.Max = at(50), at(95), at(100)
	return q
}

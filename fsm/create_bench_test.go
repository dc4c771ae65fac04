package fsm

import "testing"

// BenchmarkCreateCommand is the way of a thousand creates through the log, per job.
func BenchmarkCreateCommand(b *testing.B) {
	w := &world{tb: b}
	c := &Create{Head: Head{Now: T(0), Term: 3}}
	def := w.def(testSpec(nil), 1)
	for id := uint64(1); id <= 1000; id++ {
		c.Items = append(c.Items, CreateItem{Job: id, Def: def, Next: When{At: T(1), Ready: T(1)}})
	}
	data, err := Encode(c)
	if err != nil {
		b.Fatal(err)
	}
	perJob := func(b *testing.B) { b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/job") }
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(c); err != nil {
				b.Fatal(err)
			}
		}
		perJob(b)
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(data); err != nil {
				b.Fatal(err)
			}
		}
		perJob(b)
	})
}

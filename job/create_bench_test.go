package job

import "testing"

// A line of `carillon bench load`, as most people's bulk loads are.
var createLine = []byte(`{"name":"9e3779b97f4a7c15-idle-0","type":"http","schedule":"17 43 10 * * *","payload":{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":123456,"kind":"daily"}}}`)

// BenchmarkCreate is what a create costs before its schedule is read: the text, the defaults, the checks.
func BenchmarkCreate(b *testing.B) {
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeSpec(createLine); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		var read Spec
		if err := DecodeStrict(createLine, &read); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			s := read
			s.Normalize()
			if err := s.Validate(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package job

import "testing"

func BenchmarkDecodeStrict(b *testing.B) {
	line := []byte(`{"name":"report-000123","type":"http","schedule":"0 9 * * MON-FRI","timezone":"Europe/Berlin","payload":{"url":"https://example.com/report?n=123","method":"POST","headers":{"X-A":"b"},"body":{"kind":"daily","n":123}},"retry":{"max_retries":5,"base":"10s"},"overlap":"queue","tags":{"team":"billing"}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		var s Spec
		if err := DecodeStrict(line, &s); err != nil {
			b.Fatal(err)
		}
	}
}

package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Attack: an operator of one namespace makes calendars until lists of them take the memory of a node. There is an end to
// that, which other namespaces do not feel; and what is there can be made smaller.
func TestCalendarsOfANamespaceAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	put := func(namespace, name string, dates int) apiAnswer {
		text := strings.Repeat(`"2030-12-24",`, dates) + `"2030-12-25"`
		return n.call("PUT", fmt.Sprintf("/api/v1/calendars/%s?namespace=%s", name, namespace), `{"dates":[`+text+`]}`)
	}
	const large, most = 5000, 64 // 65,000 bytes, of 4 MiB
	for i := range most {
		if a := put("team-a", fmt.Sprint("large", i), large); a.status != 200 {
			t.Fatalf("calendar %d: %d %s", i, a.status, a.body)
		}
	}
	if p := put("team-a", "more", large).problem(); p.Code != job.CodeState || !strings.Contains(p.Message, "4194304 are allowed") {
		t.Errorf("too many bytes: %+v", p)
	}
	for i := range 512 {
		if a := put("team-b", fmt.Sprint("small", i), 0); a.status != 200 {
			t.Fatalf("calendar %d: %d %s", i, a.status, a.body)
		}
	}
	if p := put("team-b", "more", 0).problem(); p.Code != job.CodeState || !strings.Contains(p.Message, "512 calendars") {
		t.Errorf("too many: %+v", p)
	}
	for _, c := range []struct {
		namespace, name string
		dates           int
	}{{"team-a", "large1", large}, {"team-a", "large2", 0}, {"team-a", "more", 1000}, {"team-b", "small1", 1}, {"team-c", "first", large}} {
		if a := put(c.namespace, c.name, c.dates); a.status != 200 {
			t.Errorf("%+v: %d %s", c, a.status, a.body)
		}
	}
	if c := ok[schedule.Calendar](n, "GET", "/api/v1/calendars/first?namespace=team-c", nil); c.Namespace != "team-c" ||
		len(c.Dates) != large+1 {
		t.Errorf("%s in %s has %d dates", c.Name, c.Namespace, len(c.Dates))
	}
	if a := n.call("GET", "/api/v1/calendars/first", nil); a.status != 404 {
		t.Errorf("of another namespace: %d %s", a.status, a.body)
	}
}

package values

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// Logging refuses what --log-level and --log-format cannot be.
func Logging(level, format string) error {
	switch {
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, level):
		return job.Invalid("--log-level", "use debug, info, warn or error", "there is no level %q", level)
	case !slices.Contains([]string{"text", "json"}, format):
		return job.Invalid("--log-format", "use text or json", "there is no format %q", format)
	}
	return nil
}

// IsAddress says whether a text is host:port with a port that there can be; the host may be missing.
func IsAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /@") {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

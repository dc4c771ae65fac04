package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// ErrSilent says that no answer came in time: the node is gone, cut off, or stands still.
var ErrSilent = errors.New("no answer")

// Plainly is why a node did not answer within a time, in words for a reader who knows its address already.
func Plainly(err error, within time.Duration) error {
	var op *net.OpError
	var sys *os.SyscallError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w within %s", ErrSilent, within)
	case errors.As(err, &dns):
		return fmt.Errorf("its name %q cannot be resolved: %s", dns.Name, dns.Err)
	case errors.As(err, &sys):
		return sys.Err
	case errors.As(err, &op):
		return op.Err
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection")
	}
	return err
}

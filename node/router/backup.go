package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
)

// Backup is a copy of every group, that of the control group first, which says how many there are. All copies are made
// before the first byte goes out: a group that cannot be asked is an error, and not half a backup.
func (b *backend) Backup(ctx context.Context) (info wire.BackupInfo, _ io.ReadCloser, err error) {
	all := &copies{}
	defer func() {
		if err != nil {
			all.Close()
		}
	}()
	for g := uint32(control); g <= info.Groups; g++ {
		c, err := b.rt.copyOf(ctx, g)
		if err != nil {
			return info, nil, err
		}
		all.parts, all.left = append(all.parts, c), append(all.left, c)
		one := c.info()
		if g == control {
			info = one
			continue
		}
		info.Size, info.Age = info.Size+one.Size, max(info.Age, one.Age)
	}
	return info, all, nil
}

// copies are read one after the other.
type copies struct {
	parts, left []*groupCopy
}

func (c *copies) Read(p []byte) (int, error) {
	for len(c.left) > 0 {
		n, err := c.left[0].body.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		c.left = c.left[1:]
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

func (c *copies) Close() error {
	for _, p := range c.parts {
		p.close()
	}
	return nil
}

// groupCopy is the answer of a group that is read while it comes. It is the http.ResponseWriter of that.
type groupCopy struct {
	header http.Header
	status int
	begun  chan struct{} // the status is known
	body   *io.PipeReader
	to     *io.PipeWriter
	ended  chan struct{}
	cancel context.CancelFunc
}

func (c *groupCopy) Header() http.Header { return c.header }

func (c *groupCopy) WriteHeader(status int) {
	if c.status == 0 && status >= 200 {
		c.status = status
		close(c.begun)
	}
}

func (c *groupCopy) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.to.Write(b)
}

// Flush is for those that answer piece by piece.
func (c *groupCopy) Flush() {}

func (c *groupCopy) close() {
	c.cancel()
	c.body.Close()
	<-c.ended
}

func (c *groupCopy) info() (i wire.BackupInfo) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(c.header.Get(name), 10, 64) // a node wrote it
		return n
	}
	return wire.BackupInfo{ClusterID: c.header.Get(wire.HeaderCluster), Index: uint64(number(wire.HeaderIndex)),
		Age: time.Duration(number(wire.HeaderAge)) * time.Millisecond, Size: number("Content-Length"),
		Groups: uint32(number(wire.HeaderGroups))}
}

// copyOf has a group make a copy of its state, and returns when that is about to be sent.
func (rt *Router) copyOf(ctx context.Context, group uint32) (*groupCopy, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &groupCopy{header: http.Header{}, begun: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
	c.body, c.to = io.Pipe()
	r := request(ctx, stateOf(ctx).r, http.MethodGet, path("/backup"), nil, nil)
	go func() {
		defer close(c.ended)
		c.to.CloseWithError(rt.serve(group, c, r))
	}()
	select {
	case <-c.begun:
	case <-c.ended:
	}
	if c.status == http.StatusOK {
		return c, nil
	}
	defer c.close()
	body, err := io.ReadAll(io.LimitReader(c.body, maxBody))
	if err != nil {
		return nil, err
	}
	e := refusal(group, c.status, body)
	if group != control && !absent(e) {
		e.Message = fmt.Sprintf("group %d: %s", group, e.Message)
	}
	return nil, e
}

// Release ends the hold of the control group. The others follow that by themselves, whatever becomes of this request,
// and it waits a while for them.
func (b *backend) Release(ctx context.Context, _ api.Request) (out wire.ReleaseResult, err error) {
	s := stateOf(ctx)
	release := func(g uint32, v *wire.ReleaseResult) error {
		return b.rt.do(request(ctx, s.r, http.MethodPost, s.r.URL.EscapedPath(), s.query(), nil), g, v)
	}
	if err := release(control, &out); err != nil {
		return out, err
	}
	groups := b.rt.o.Groups()
	waiting := make([]bool, len(groups))
	releasing := make([]bool, len(groups))
	err = b.rt.each(ctx, groups, false, func(g uint32) error {
		var one wire.ReleaseResult
		i := slices.Index(groups, g)
		switch err := release(g, &one); {
		case err != nil && !absent(err):
			return err
		case err != nil:
			waiting[i] = true
		default:
			waiting[i], releasing[i] = one.Waiting != nil, one.Releasing
		}
		return nil
	})
	for i, g := range groups {
		if waiting[i] {
			out.Waiting = append(out.Waiting, g)
		}
	}
	out.Releasing = out.Releasing || slices.Contains(releasing, true)
	return out, err
}

package transport

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Later is a snapshot that is made when it is begun: a copy of the whole state,
// which may be gigabytes.
type Later interface {
	io.Reader
	Begin() (size int64, err error)
}

// InstallSnapshot sends a snapshot. One that is yet to be made is made only if
// the peer can be reached: raft asks for another with every try.
func (t *RaftTransport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	later, ok := data.(Later)
	if !ok {
		if err := t.mayAsk(); err != nil {
			return err
		}
		return t.NetworkTransport.InstallSnapshot(id, to, req, resp, data)
	}
	t.absent.wait(id, maxAbsence)
	if err := t.mayAsk(); err != nil {
		return err
	}
	if err := t.vain.check(id); err != nil {
		return err
	}
	if err := t.reach(id, to); err != nil {
		if notDialled(err) {
			t.absent.missed(id)
		}
		return err
	}
	began := time.Now()
	size, err := later.Begin()
	took := time.Since(began)
	if err == nil {
		req.Size = size
		err = t.NetworkTransport.InstallSnapshot(id, to, req, resp, data)
	}
	if err != nil || !resp.Success {
		t.vain.note(id, took)
	}
	return err
}

// reach says whether a peer takes connections.
func (t *RaftTransport) reach(id raft.ServerID, to raft.ServerAddress) error {
	if p := t.layer.addressProvider(); p != nil {
		if at, err := p.ServerAddr(id); err == nil {
			to = at
		}
	}
	c, err := t.layer.Dial(to, t.timeout)
	if err != nil {
		return err
	}
	return c.Close()
}

// vainShare is how much of the time copies of the state may be made that a peer
// does not take: a part of so many. It may refuse them for hours, for want of
// room perhaps, and the disk is needed for other things.
const vainShare = 10

// maxVain bounds how long the next one waits.
const maxVain = 5 * time.Minute

// vain are the peers that did not take the last copy.
type vain struct {
	mu    sync.Mutex
	until map[raft.ServerID]time.Time
}

func (v *vain) check(id raft.ServerID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d := time.Until(v.until[id]); d > 0 {
		return fmt.Errorf("transport: server %s did not take the last copy of the state; the next is made in %s", id,
			d.Round(time.Second))
	}
	delete(v.until, id)
	return nil
}

func (v *vain) note(id raft.ServerID, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.until == nil {
		v.until = map[raft.ServerID]time.Time{}
	}
	v.until[id] = time.Now().Add(min(vainShare*took, maxVain))
}

// arrivingSnapshot is one that is being received. Raft reads it in its main loop,
// and neither votes nor follows another leader meanwhile: one that is frozen in
// the middle of sending would keep this server from it for as long as its kernel
// answers.
type arrivingSnapshot struct {
	io.Reader
	conn     net.Conn
	patience time.Duration
}

func (a *arrivingSnapshot) Read(p []byte) (int, error) {
	_ = a.conn.SetReadDeadline(time.Now().Add(a.patience)) //nolint:errcheck // the read says it
	defer a.conn.SetReadDeadline(time.Time{})              //nolint:errcheck // as above
	return a.Reader.Read(p)
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// at speaks to one node, with the admin's token on a secure cluster.
func (c *Cluster) at(addr string, opts ...client.Option) *client.Client {
	opts = append([]client.Option{patient}, opts...)
	if c.admin != "" {
		opts = append(opts, client.WithToken(c.admin))
	}
	return client.New(addr, opts...)
}

// makeKeys makes the keys of a secure cluster, and returns the flags that its nodes are started with. What one token
// may ask for is no bound of a measurement: all of its clients have the same.
func (c *Cluster) makeKeys(ctx context.Context, dir string) ([]string, error) {
	out := filepath.Join(dir, "keys")
	if text, err := exec.CommandContext(ctx, c.binary, "cluster", "init", "--out", out).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making the keys of a cluster: %w: %s", err, text)
	}
	return []string{"--secure", "--keys-from", out, "--max-requests-per-token", "1000000"}, nil
}

// adminTokenFile is what a node that begins a secure cluster writes into its data directory.
const adminTokenFile = "admin.token"

// enter waits for the token that the first node of a secure cluster writes for its admin.
func (c *Cluster) enter(ctx context.Context, dir string, secure bool) error {
	if !secure {
		return nil
	}
	file := filepath.Join(dir, c.nodes[0].name, adminTokenFile)
	limit := time.After(readyLimit)
	for {
		text, err := os.ReadFile(file)
		switch {
		case err == nil:
			c.admin = strings.TrimSpace(string(text))
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case !c.nodes[0].alive():
			return fmt.Errorf("%s ended: %s", c.nodes[0].name, tail(c.nodes[0].log))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return c.notReady(make([]string, len(c.addrs)))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// makeToken makes the token of the workers.
func (c *Cluster) makeToken(ctx context.Context, dir string) error {
	made, err := c.at(c.addrs[0]).CreateToken(ctx, client.TokenRequest{Name: "bench", Role: job.RoleWorker})
	if err != nil {
		return err
	}
	c.token = filepath.Join(dir, "workers.token")
	return os.WriteFile(c.token, []byte(made.Text+"\n"), 0o600)
}

package connectproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// relay copies both ways between client and upstream until both sides have
// closed, one fails, nothing moves for idle, or ctx ends, and then closes both.
// A side that only closed its sending half still receives. It returns the bytes
// copied to upstream and to the client.
func relay(ctx context.Context, client, upstream net.Conn, idle time.Duration) (sent, received int64) {
	t := &tunnel{conns: []net.Conn{client, upstream}, idle: idle}
	defer t.close()
	defer context.AfterFunc(ctx, t.close)()
	t.touch()
	var wg sync.WaitGroup
	wg.Go(func() { sent = t.copy(upstream, client) })
	received = t.copy(client, upstream)
	wg.Wait()
	return sent, received
}

type tunnel struct {
	conns []net.Conn
	idle  time.Duration
}

// touch starts the idle time anew for both directions: a long download is not
// idle although its client says nothing.
func (t *tunnel) touch() {
	deadline := time.Now().Add(t.idle)
	for _, c := range t.conns {
		_ = c.SetDeadline(deadline) // a closed connection fails its next read anyway
	}
}

func (t *tunnel) close() {
	for _, c := range t.conns {
		_ = c.Close()
	}
}

// copy moves bytes from src to dst. At the end of src it closes dst's sending
// half; an error ends the whole tunnel.
func (t *tunnel) copy(dst, src net.Conn) int64 {
	n, err := t.pump(dst, src)
	if err == nil {
		err = closeWrite(dst)
	}
	if err != nil {
		t.close()
	}
	return n
}

func (t *tunnel) pump(dst, src net.Conn) (total int64, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := src.Read(buf)
		if n > 0 {
			t.touch()
			written, err := dst.Write(buf[:n])
			total += int64(written)
			if err != nil {
				return total, err
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return total, nil
		case readErr != nil:
			return total, readErr
		}
	}
}

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	return half.CloseWrite()
}

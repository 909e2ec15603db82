package connectproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// side is one of the two connections of a request. Bytes in either direction extend the deadlines of both connections: a
// long download is not idle although its client sends nothing.
type side struct {
	net.Conn
	from  io.Reader // Conn, or a reader that has buffered its first bytes
	touch func()
}

// pair connects a client with its upstream.
func pair(client net.Conn, from io.Reader, upstream net.Conn, idle time.Duration) (*side, *side) {
	touch := func() {
		deadline := time.Now().Add(idle)
		_ = client.SetDeadline(deadline) // a closed connection fails its next read
		_ = upstream.SetDeadline(deadline)
	}
	return &side{Conn: client, from: from, touch: touch}, &side{Conn: upstream, from: upstream, touch: touch}
}

// Read reads after it has extended the deadlines.
func (s *side) Read(b []byte) (int, error) {
	s.touch()
	return s.from.Read(b)
}

// Write writes after it has extended the deadlines.
func (s *side) Write(b []byte) (int, error) {
	s.touch()
	return s.Conn.Write(b)
}

// relay copies both ways until both sides have closed, one fails or both are idle. A side that closed only its sending
// half still receives.
func relay(client, upstream *side) {
	var wg sync.WaitGroup
	wg.Go(func() { pump(upstream, client) })
	pump(client, upstream)
	wg.Wait()
}

// pump copies from src to dst. At the end of src it closes dst's sending half; an error closes both.
func pump(dst, src *side) {
	_, err := io.Copy(dst, src)
	if err == nil {
		err = closeWrite(dst.Conn)
	}
	if err != nil {
		_ = dst.Close()
		_ = src.Close()
	}
}

// closeWrite closes the sending half of connections that have one, such as those of TCP and TLS.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// hopHeaders belong to the client's connection, or identify the client. Upstreams do not receive them.
var hopHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Upgrade",
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

func dropHopHeaders(h http.Header) {
	for _, name := range strings.Split(strings.Join(h.Values("Connection"), ","), ",") {
		h.Del(strings.TrimSpace(name))
	}
	for _, name := range hopHeaders {
		h.Del(name)
	}
}

// forward sends a plain request and copies the response. The upstream closes the connection after it.
func forward(client, upstream *side, req Request) error {
	req.Header.Del("Proxy-Authorization") // Open may have used it
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "") // or net/http adds its own
	}
	req.Close = true
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		if req.Write(upstream) != nil {
			_ = upstream.Close()
		}
	})
	defer upstream.Close()
	response := bufio.NewReader(upstream)
	if _, err := response.Peek(1); err != nil {
		return &Refusal{http.StatusBadGateway, "http_response_incomplete", fmt.Errorf("no response from %s: %w", req.Target, err)}
	}
	_, _ = io.Copy(client, response)
	return nil
}

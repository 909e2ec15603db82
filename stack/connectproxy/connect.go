package connectproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
)

// connect opens a tunnel and keeps it until one side is done with it.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) error {
	f, err := facts(r)
	if err != nil {
		return err
	}
	if r.URL.User != nil || r.URL.Path != "" || r.URL.RawQuery != "" {
		return badRequest("CONNECT takes host:port and nothing else")
	}
	upstream, err := p.dial(r.Context(), f, r.URL.Host)
	if err != nil {
		return err
	}
	defer upstream.Close()
	p.tunnels.Add(1)
	defer p.tunnels.Done()
	client, err := takeOver(w)
	if err != nil {
		return err
	}
	relay(r.Context(), client, upstream, p.idleTimeout)
	return nil
}

// takeOver answers the CONNECT and takes the connection from the HTTP server,
// with what the client sent after its request without waiting for the answer.
func takeOver(w http.ResponseWriter) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the client's connection: %w", err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("client connection is %T, not TCP", conn)
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("answer CONNECT: %w", err)
	}
	return &prefixedConn{TCPConn: tcp, prefix: bytes.NewReader(bytes.Clone(early))}, nil
}

// prefixedConn is a TCP connection of which some bytes have been read already.
type prefixedConn struct {
	*net.TCPConn
	prefix *bytes.Reader
}

// Read returns the bytes read earlier before those of the connection.
func (c *prefixedConn) Read(b []byte) (int, error) {
	if c.prefix.Len() > 0 {
		return c.prefix.Read(b)
	}
	return c.TCPConn.Read(b)
}

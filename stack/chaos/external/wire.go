package external

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

const (
	established = "HTTP/1.1 200 Connection established\r\n\r\n"
	// junk is no TLS record: its first byte names no content type.
	junk = "\x00\x01\x02\x03 this is not what you asked for \xff\xfe\xfd"
)

// page is what a proxy answers whose owner was not paid.
func page() string {
	const body = "<html><body>Your plan has ended. Please pay.</body></html>"
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// say writes to a peer that may be gone.
func say(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

// readConnect reads a CONNECT and returns the host:port that it is for.
func readConnect(from *bufio.Reader) (host string, ok bool) {
	req, err := http.ReadRequest(from)
	if err != nil || req.Method != http.MethodConnect {
		return "", false
	}
	return req.Host, true
}

// babble says that the tunnel is open, and answers what comes through it with
// junk.
func babble(conn net.Conn, from *bufio.Reader) {
	say(conn, established)
	if _, err := from.ReadByte(); err == nil {
		say(conn, junk)
		discard(conn)
	}
}

// discard reads until the peer goes or is hung up on.
func discard(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// splice copies both ways until both sides have ended.
func splice(client net.Conn, from io.Reader, site net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(site, from)
		endWriting(site)
	})
	both.Go(func() {
		_, _ = io.Copy(client, site)
		endWriting(client)
	})
	both.Wait()
}

func endWriting(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	_ = conn.Close()
}

package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Bounds on the response to CONNECT. Real ones have a few hundred bytes.
const (
	maxConnectBytes   = 16 << 10
	connectBufferSize = 2 << 10
	maxInterim        = 4 // 1xx responses before the final one
)

// userAgent is the User-Agent sent to proxies and targets.
const userAgent = "crawl-proxy-prober/1"

var (
	errNotHTTP  = errors.New("the response is not HTTP")
	errTooLong  = errors.New("the response headers are too long")
	errInterims = errors.New("too many interim responses")
)

// connect requests a tunnel from the proxy (RFC 9110, 9.3.6).
func (a *attempt) connect(_ context.Context) error {
	if _, err := a.conn.Write(a.connectRequest()); err != nil {
		return err
	}
	br := bufio.NewReaderSize(a.conn, connectBufferSize)
	status, err := readConnectResponse(br)
	if err != nil {
		return err
	}
	if err := connectStatus(status, a.auth != ""); err != nil {
		return err
	}
	if br.Buffered() > 0 {
		a.conn = &prefixedConn{Conn: a.conn, r: br}
	}
	return nil
}

func (a *attempt) connectRequest() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", a.target.authority, a.target.authority, userAgent)
	if a.auth != "" {
		fmt.Fprintf(&b, "Proxy-Authorization: %s\r\n", a.auth)
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// connectStatus returns the error for the status of the response to CONNECT, nil for
// a tunnel.
func connectStatus(status int, sentCredentials bool) error {
	text := fmt.Sprintf("the proxy answered %d to CONNECT", status)
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusProxyAuthRequired || status == http.StatusUnauthorized:
		return authRefused(text, sentCredentials)
	case refuses(status):
		return stageError{ReasonConnectRefused, text + ": its policy denies this client or the target"}
	case status >= 502 && status <= 504:
		return stageError{ReasonUpstreamFailed, text + ": it cannot reach the target"}
	}
	return stageError{ReasonConnectFailed, text + ", which opens no tunnel"}
}

func authRefused(text string, sentCredentials bool) error {
	if sentCredentials {
		return stageError{ReasonProxyAuthRefused, text + ": it does not accept the credentials of credentialsRef"}
	}
	return stageError{ReasonProxyAuthRefused, text + ": it requires credentials; set credentialsRef"}
}

// readConnectResponse reads the response to CONNECT up to the empty line after its
// headers, skips interim responses, and returns the status. The bytes after it stay in
// br. It reads at most maxConnectBytes.
func readConnectResponse(br *bufio.Reader) (int, error) {
	left := maxConnectBytes
	for range maxInterim + 1 {
		status, err := readHead(br, &left)
		if err != nil || status >= 200 {
			return status, err
		}
	}
	return 0, errInterims
}

func readHead(br *bufio.Reader, left *int) (int, error) {
	line, err := readLine(br, left)
	if err != nil {
		return 0, err
	}
	status, ok := parseStatusLine(line)
	if !ok {
		return 0, errNotHTTP
	}
	for {
		line, err := readLine(br, left)
		switch {
		case err != nil:
			return 0, err
		case len(line) == 0:
			return status, nil
		case bytes.IndexByte(line, ':') < 1:
			return 0, errNotHTTP
		}
	}
}

// readLine returns the next line without its CRLF or bare LF (RFC 9112, 2.2). A line
// longer than the buffer is cut. left is the number of bytes until errTooLong.
func readLine(br *bufio.Reader, left *int) ([]byte, error) {
	var head []byte // of a line that is longer than the buffer
	for {
		piece, err := br.ReadSlice('\n')
		*left -= len(piece)
		switch {
		case *left < 0:
			return nil, errTooLong
		case errors.Is(err, bufio.ErrBufferFull) && head == nil:
			head = bytes.Clone(piece)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && *left < maxConnectBytes: // in the middle of the response
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case head != nil:
			return head, nil
		default:
			return bytes.TrimSuffix(piece[:len(piece)-1], []byte("\r")), nil
		}
	}
}

// parseStatusLine parses "HTTP/1.x NNN reason". The reason may be missing, and is
// ignored.
func parseStatusLine(line []byte) (status int, ok bool) {
	const prefix = "HTTP/1.x NNN"
	if len(line) < len(prefix) || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return 0, false
	}
	if line[7] != '0' && line[7] != '1' || len(line) > len(prefix) && line[len(prefix)] != ' ' {
		return 0, false
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	return status, status >= 100
}

// prefixedConn is a connection whose first bytes are buffered in r.
type prefixedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read reads from the buffer, then from the connection.
func (c *prefixedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

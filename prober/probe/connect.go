package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	status, marks, err := readConnectResponse(br)
	if err != nil {
		return err
	}
	if status >= 300 {
		return marks.refusal(status, "CONNECT", a.auth != "")
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

// readConnectResponse reads the response to CONNECT up to the empty line after its
// headers, skips interim responses, and returns the status and the marks of a refusal.
// The bytes after it stay in br. It reads at most maxConnectBytes.
func readConnectResponse(br *bufio.Reader) (int, proxyMarks, error) {
	left := maxConnectBytes
	for range maxInterim + 1 {
		status, marks, err := readHead(br, &left)
		if err != nil || status >= 200 {
			return status, marks, err
		}
	}
	return 0, proxyMarks{}, errInterims
}

// readHead accepts folded header lines (RFC 9112, 5.2), as curl and Python do.
func readHead(br *bufio.Reader, left *int) (int, proxyMarks, error) {
	var marks proxyMarks
	line, err := readLine(br, left)
	if err != nil {
		return 0, marks, err
	}
	status, ok := parseStatusLine(line)
	if !ok {
		return 0, marks, errNotHTTP
	}
	for {
		line, err := readLine(br, left)
		switch {
		case err != nil:
			return 0, proxyMarks{}, err
		case len(line) == 0:
			return status, marks, nil
		case blank(line[0]): // continues the line before
			continue
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 {
			return 0, proxyMarks{}, errNotHTTP
		}
		if status >= 300 {
			marks.note(string(bytes.TrimSpace(line[:colon])), string(bytes.TrimSpace(line[colon+1:])))
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

// parseStatusLine parses "HTTP/1.x NNN reason" with any minor version and any number of
// blanks, as curl and Python do. The reason may be missing, and is ignored.
func parseStatusLine(line []byte) (status int, ok bool) {
	const version, digits = len("HTTP/1.x"), 3
	if len(line) <= version || !bytes.HasPrefix(line, []byte("HTTP/1.")) || !digit(line[version-1]) || !blank(line[version]) {
		return 0, false
	}
	rest := bytes.TrimLeft(line[version:], " \t")
	if len(rest) < digits || len(rest) > digits && !blank(rest[digits]) {
		return 0, false
	}
	for _, c := range rest[:digits] {
		if !digit(c) {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	return status, status >= 100
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func blank(c byte) bool { return c == ' ' || c == '\t' }

// prefixedConn is a connection whose first bytes are buffered in r.
type prefixedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read reads from the buffer, then from the connection.
func (c *prefixedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

package probe

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(answer io.Reader) (status int, rest string, err error) {
	status, _, rest, err = parseMarks(answer)
	return status, rest, err
}

func parseMarks(answer io.Reader) (status int, marks proxyMarks, rest string, err error) {
	br := bufio.NewReaderSize(answer, connectBufferSize)
	if status, marks, err = readConnectResponse(br); err != nil {
		return 0, proxyMarks{}, "", err
	}
	b, err := io.ReadAll(br)
	return status, marks, string(b), err
}

func TestReadConnectResponse(t *testing.T) {
	long := strings.Repeat("x", 3*connectBufferSize)
	for _, tc := range []struct {
		name, answer string
		status       int
		rest         string
		err          error
	}{
		{"plain", "HTTP/1.1 200 Connection established\r\n\r\n", 200, "", nil},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n", 200, "", nil},
		{"bare line feeds", "HTTP/1.1 200 OK\nVia: x\n\n", 200, "", nil},
		{"no reason", "HTTP/1.1 407\r\n\r\n", 407, "", nil},
		{"empty reason", "HTTP/1.1 407 \r\n\r\n", 407, "", nil},
		{"two blanks in the status line", "HTTP/1.1  200 OK\r\n\r\n", 200, "", nil},
		{"a tab in the status line", "HTTP/1.1\t200\tOK\r\n\r\n", 200, "", nil},
		{"a later minor version", "HTTP/1.2 200 OK\r\n\r\n", 200, "", nil},
		{"a folded header line", "HTTP/1.1 200 OK\r\nVia: 1.1 a,\r\n 1.1 b\r\n\t1.1 c\r\nA: b\r\n\r\nrest", 200, "rest", nil},
		{"a folded line without a header", "HTTP/1.1 200 OK\r\n 1.1 b\r\n\r\n", 200, "", nil},
		{"a blank before the colon", "HTTP/1.1 200 OK\r\nVia : x\r\n\r\n", 200, "", nil},
		{"folded lines without end", "HTTP/1.1 200 OK\r\nA: b\r\n" + strings.Repeat(" c\r\n", maxConnectBytes), 0, "", errTooLong},
		{"blanks without end", "HTTP/1.1" + strings.Repeat(" ", maxConnectBytes) + "200 OK\r\n\r\n", 0, "", errTooLong},
		{"what follows stays", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n\x16\x03rest", 200, "\x16\x03rest", nil},
		{"long header", "HTTP/1.1 200 OK\r\nA: " + long + "\r\n\r\nrest", 200, "rest", nil},
		{"long reason", "HTTP/1.1 200 " + long + "\r\n\r\n", 200, "", nil},
		{"interim first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200, "", nil},
		{"interims without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), 0, "", errInterims},
		{"nothing", "", 0, "", io.EOF},
		{"half a status line", "HTTP/1.1 20", 0, "", io.ErrUnexpectedEOF},
		{"no end of headers", "HTTP/1.1 200 OK\r\nA: b\r\n", 0, "", io.ErrUnexpectedEOF},
		{"half a long header", "HTTP/1.1 200 OK\r\nA: " + long, 0, "", io.ErrUnexpectedEOF},
		{"HTTP/2", "HTTP/2 200\r\n\r\n", 0, "", errNotHTTP},
		{"HTTP/1.10", "HTTP/1.10 200 OK\r\n\r\n", 0, "", errNotHTTP},
		{"HTTP/0.9", "HTTP/0.9 200 OK\r\n\r\n", 0, "", errNotHTTP},
		{"small letters", "http/1.1 200 OK\r\n\r\n", 0, "", errNotHTTP},
		{"no blank before the status", "HTTP/1.1200 OK\r\n\r\n", 0, "", errNotHTTP},
		{"no blank after the status", "HTTP/1.1 200OK\r\n\r\n", 0, "", errNotHTTP},
		{"no status", "HTTP/1.1 \r\n\r\n", 0, "", errNotHTTP},
		{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", 0, "", errNotHTTP},
		{"two digits", "HTTP/1.1 20 OK\r\n\r\n", 0, "", errNotHTTP},
		{"letters", "HTTP/1.1 2OO OK\r\n\r\n", 0, "", errNotHTTP},
		{"below 100", "HTTP/1.1 099 OK\r\n\r\n", 0, "", errNotHTTP},
		{"header without a name", "HTTP/1.1 200 OK\r\n: x\r\n\r\n", 0, "", errNotHTTP},
		{"header without a colon", "HTTP/1.1 200 OK\r\nx\r\n\r\n", 0, "", errNotHTTP},
		{"too many headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxConnectBytes), 0, "", errTooLong},
		{"a header too long", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxConnectBytes) + "\r\n\r\n", 0, "", errTooLong},
		{"a last line too long", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxConnectBytes-22) + "\r\n\r\n", 0, "", errTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tc.answer), iotest.OneByteReader(strings.NewReader(tc.answer))} {
				status, rest, err := parse(r)
				require.ErrorIs(t, err, tc.err)
				assert.Equal(t, tc.status, status)
				assert.Equal(t, tc.rest, rest)
			}
		})
	}
}

// endless yields one byte for ever and counts how much was taken.
type endless struct {
	head string
	b    byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
		if e.read+i < len(e.head) {
			p[i] = e.head[e.read+i]
		}
	}
	e.read += len(p)
	return len(p), nil
}

func TestReadConnectResponseIsBounded(t *testing.T) {
	for _, head := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nA:"} {
		src := &endless{head: head, b: 'x'}
		_, _, err := parse(src)
		require.Error(t, err)
		assert.LessOrEqual(t, src.read, maxConnectBytes+2*connectBufferSize)
	}
}

func TestReadConnectResponseKeepsMarksOfRefusals(t *testing.T) {
	_, marks, _, err := parseMarks(strings.NewReader("HTTP/1.0 500 no\nx-squid-error : ERR_DNS_FAIL 0 \nProxy-Authenticate: Basic,\n realm=x\n\n"))
	require.NoError(t, err)
	assert.Equal(t, proxyMarks{own: true, challenge: true, cause: squidCauses["ERR_DNS_FAIL"]}, marks)
	_, marks, _, err = parseMarks(strings.NewReader("HTTP/1.1 200 OK\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\n\r\n"))
	require.NoError(t, err)
	assert.Zero(t, marks, "a tunnel")
}

func FuzzReadConnectResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\n\nrest", "HTTP/1.1 200", "\r\n\r\n", "HTTP/1.1 2", "\x16\x03\x01",
		"HTTP/1.1  200 OK\r\nVia: a\r\n b\r\n\r\nrest", "HTTP/1.1\t503\nX-Squid-Error: ERR_DNS_FAIL 0\n\n",
		"HTTP/1.2 502 \r\nProxy-Status: a, b; error=dns_error; details=\"\\\", c\"\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 5000) + "\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		status, marks, rest, err := parseMarks(strings.NewReader(string(answer)))
		slow, slowMarks, slowRest, slowErr := parseMarks(iotest.OneByteReader(strings.NewReader(string(answer))))
		if status != slow || marks != slowMarks || rest != slowRest || !errors.Is(slowErr, err) {
			t.Fatalf("the answer depends on how it is cut: %d %q %v, %d %q %v", status, rest, err, slow, slowRest, slowErr)
		}
		if err == nil && (status < 200 || status > 999 || !strings.HasSuffix(string(answer), rest)) {
			t.Fatalf("status %d, rest %q", status, rest)
		}
		if err == nil && len(answer)-len(rest) > maxConnectBytes {
			t.Fatalf("read %d bytes of headers", len(answer)-len(rest))
		}
		if err == nil && status >= 300 {
			var refusal stageError
			if !errors.As(marks.refusal(status, "CONNECT", false), &refusal) || refusal.reason == "" || refusal.text == "" {
				t.Fatalf("a refusal without a reason: %+v", refusal)
			}
		}
	})
}

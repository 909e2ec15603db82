package connectproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTunnelHalfClosedByTheClientStillReceives(t *testing.T) {
	target := rawServer(t, func(c *net.TCPConn) {
		said, _ := io.ReadAll(c) // ends only when the client's close arrives
		_, _ = c.Write(append([]byte("received "), said...))
	})
	conn, r := tunnelTo(t, startProxy(t, allowLoopback()), target)
	_, err := io.WriteString(conn, "hello")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())

	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "received hello", string(got))
}

func TestTunnelHalfClosedByTheServerStillSends(t *testing.T) {
	heard := make(chan string, 1)
	target := rawServer(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		said, _ := io.ReadAll(c)
		heard <- string(said)
	})
	conn, r := tunnelTo(t, startProxy(t, allowLoopback()), target)
	_, err := r.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	_, err = io.WriteString(conn, "still here")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	assert.Equal(t, "still here", <-heard)
}

func TestTunnelKeepsBytesSentBeforeTheResponse(t *testing.T) {
	target := rawServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	conn, r, resp := ask(t, startProxy(t, allowLoopback()), "CONNECT "+target+" HTTP/1.1\r\nHost: x\r\n\r\nearly")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, err := io.WriteString(conn, " late")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "early late", string(got))
}

func TestTunnelCarriesMegabytesBothWays(t *testing.T) {
	const size = 8 << 20
	sent := make([]byte, size)
	_, err := rand.Read(sent)
	require.NoError(t, err)
	target := rawServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	conn, r := tunnelTo(t, startProxy(t, allowLoopback()), target)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got), "%d bytes came back", len(got))
}

func TestTunnelEndsAfterTheIdleTimeout(t *testing.T) {
	gone := make(chan error, 1)
	target := rawServer(t, func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		gone <- err
	})
	_, r := tunnelTo(t, startIdleProxy(t, allowLoopback(), 50*time.Millisecond), target)
	_, err := r.ReadByte()
	require.Error(t, err)
	require.Error(t, <-gone)
}

// One direction is silent for much longer than the idle timeout; the tunnel ends once both are.
func TestTunnelThatOnlyReceivesIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle, pieces = 400 * time.Millisecond, 8
		client, fromClient := net.Pipe()
		upstream, server := net.Pipe()
		began := time.Now()
		go func() {
			for range pieces {
				time.Sleep(idle / 4)
				_, _ = server.Write([]byte("x"))
			}
		}()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			relay(pair(fromClient, fromClient, upstream, idle))
		}()
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Len(t, got, pieces)
		<-ended
		assert.Equal(t, pieces*idle/4+idle, time.Since(began))
	})
}

func TestTunnelAbortedByTheServerAbortsTheClient(t *testing.T) {
	target := rawServer(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1)) // the tunnel is open
		_ = c.SetLinger(0)
	})
	conn, r := tunnelTo(t, startProxy(t, allowLoopback()), target)
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = r.ReadByte()
	require.Error(t, err)
}

func TestServeClosesTunnelsAndRequestsWhenItEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := allowLoopback()
	address, done := serve(t, ctx, &Proxy{Open: d.Open})
	target := rawServer(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) })
	_, r := tunnelTo(t, address, target)
	arrived := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	answered := make(chan struct{})
	client := through(t, address, nil)
	go func() {
		defer close(answered)
		resp, err := client.Get(hanging.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-arrived

	cancel()

	require.NoError(t, <-done)
	_, err := r.ReadByte()
	require.Error(t, err)
	<-answered
}

func TestPlainRequestEndsAfterTheIdleTimeout(t *testing.T) {
	target := rawServer(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	proxy := startIdleProxy(t, allowLoopback(), 50*time.Millisecond)
	conn, err := net.Dial("tcp", proxy)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET http://"+target+"/ HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadAll(conn) // ends because the proxy times out
	require.NoError(t, err)
}

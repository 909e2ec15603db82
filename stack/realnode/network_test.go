package realnode

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestForwarderCopiesBothWays(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	f, err := forward("127.0.0.1:0", server.Addr().String())
	require.NoError(t, err)
	client, err := net.Dial("tcp", f.ln.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	conn, err := server.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()

	for _, way := range [][2]net.Conn{{client, conn}, {conn, client}} {
		_, err := way[0].Write([]byte("hello"))
		require.NoError(t, err)
		got := make([]byte, 5)
		require.NoError(t, way[1].SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = io.ReadFull(way[1], got)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
	}
	require.NoError(t, f.close(), "with a connection open")
	require.NoError(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = client.Read(make([]byte, 1))
	require.Error(t, err, "which ends with it")
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestForwarderWithoutDestinationCloses(t *testing.T) {
	f, err := forward("127.0.0.1:0", "127.0.0.1:1")
	require.NoError(t, err)
	client, err := net.Dial("tcp", f.ln.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	require.NoError(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = client.Read(make([]byte, 1))
	assert.True(t, errors.Is(err, io.EOF) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded))
	require.NoError(t, f.close())
}

func TestMissingProgramIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Check()
	require.ErrorIs(t, err, ErrUnfit)
	for program, pkg := range programs() {
		assert.ErrorContains(t, err, program+" (apt-get install "+pkg+")")
	}
}

func TestNodeRunsInItsOwnNamespaces(t *testing.T) {
	require.ErrorContains(t, Prepare(t.Context(), "10.0.0.1"), "Enter")
}

package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const oldToken, newToken = "0123456789abcdef-old", "0123456789abcdef-new"

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func accepts(tokens *BearerTokens, authorization string) bool {
	r := httptest.NewRequest(http.MethodPost, "/hooks/sync", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return tokens.Accepts(r)
}

func TestBearerTokens(t *testing.T) {
	tokens, err := NewBearerTokens(tokenFile(t, oldToken+"\n"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for authorization, want := range map[string]bool{
		"Bearer " + oldToken:                   true,
		"bearer " + oldToken:                   true,
		"Bearer  " + oldToken:                  true,
		"":                                     false,
		"Bearer":                               false,
		"Bearer ":                              false,
		oldToken:                               false,
		"Basic " + oldToken:                    false,
		"Bearer " + newToken:                   false,
		"Bearer " + oldToken[:len(oldToken)-1]: false,
		"Bearer " + oldToken + "x":             false,
		"Bearer " + oldToken + " " + oldToken:  false,
		"Bearer " + oldToken + ",Bearer whatever": false,
	} {
		assert.Equal(t, want, accepts(tokens, authorization), "%q", authorization)
	}
}

func TestBearerTokensRotateWithoutARestart(t *testing.T) {
	path := tokenFile(t, oldToken)
	tokens, err := NewBearerTokens(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	write := func(content string) { replace(t, path, []byte(content)) }
	both := func() [2]bool {
		return [2]bool{accepts(tokens, "Bearer "+oldToken), accepts(tokens, "Bearer "+newToken)}
	}
	assert.Equal(t, [2]bool{true, false}, both())
	write(oldToken + "\n\n" + newToken + "\n")
	assert.Equal(t, [2]bool{true, true}, both(), "both, while callers change over")
	write(newToken)
	assert.Equal(t, [2]bool{false, true}, both())
	write("")
	assert.Equal(t, [2]bool{false, true}, both(), "an emptied file opens nothing and closes nothing")
	require.NoError(t, os.Remove(path))
	assert.Equal(t, [2]bool{false, true}, both())
	write(oldToken)
	assert.Equal(t, [2]bool{true, false}, both())
}

func TestBearerTokensRefuseBadFiles(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "blank": " \n\n", "short": "secret", "one of them short": oldToken + "\nx"} {
		_, err := NewBearerTokens(tokenFile(t, content), slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "openssl rand -hex 32", name)
		assert.NotContains(t, err.Error(), "secret\n")
	}
	_, err := NewBearerTokens(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// replace writes a file as a Secret volume does it: a new one takes the old one's
// place. The same file written anew may look as before, since the time of a change
// is only so exact.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".next", content, 0o600))
	require.NoError(t, os.Rename(path+".next", path))
}

// pair writes a self-signed certificate with that serial number.
func pair(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "webhooks"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	replace(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return certFile, keyFile
}

func TestTLSReloadsTheCertificate(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := pair(t, dir, 1)
	cfg, err := TLSConfig(certFile, keyFile, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	srv := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	srv.TLSConfig = cfg
	go func() { done <- httpapi.Run(ctx, srv, ln) }()
	t.Cleanup(func() { stop(); assert.NoError(t, <-done) })
	serial := func() int64 {
		c, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.Equal(t, int64(1), serial())
	pair(t, dir, 2)
	require.Equal(t, int64(2), serial())

	require.NoError(t, os.WriteFile(certFile, []byte("rubbish"), 0o600))
	require.Equal(t, int64(2), serial(), "the old pair serves on")
	pair(t, dir, 3)
	require.Equal(t, int64(3), serial())
}

func TestTLSRefusesOldVersions(t *testing.T) {
	certFile, keyFile := pair(t, t.TempDir(), 1)
	cfg, err := TLSConfig(certFile, keyFile, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS12), cfg.MinVersion)
}

func TestTLSNamesBadFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := TLSConfig(filepath.Join(dir, "none.crt"), filepath.Join(dir, "none.key"), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
	certFile, keyFile := pair(t, dir, 1)
	require.NoError(t, os.WriteFile(keyFile, []byte("rubbish"), 0o600))
	_, err = TLSConfig(certFile, keyFile, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, keyFile)
}

// FuzzTokens: a token file is refused without a word of it, or each of its lines
// is a token.
func FuzzTokens(f *testing.F) {
	for _, seed := range []string{oldToken + "\n" + newToken, "\r\n\t" + newToken + " \r\n", "short", "", "\x00", newToken + "\u2028" + oldToken} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := parseTokens("the-file", text)
		if err != nil {
			require.Less(t, len(err.Error()), 150, "it quotes nothing")
			return
		}
		require.NotEmpty(t, tokens)
		for line := range strings.Lines(text) {
			if token := strings.TrimSpace(line); token != "" {
				require.True(t, bearer.Accepts("Bearer "+token, tokens...))
			}
		}
		require.False(t, bearer.Accepts("Bearer ", tokens...))
	})
}

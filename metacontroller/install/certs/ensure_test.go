package certs_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

func TestFreshFolder(t *testing.T) {
	opts := options(t)
	r := ensure(t, opts, start)

	require.Equal(t, []string{
		certs.FileGitignore, certs.FileCACert, certs.FileCAKey, certs.FilePatch, certs.FileKustomization, certs.FileTLS, certs.FileToken,
	}, slices.Sorted(maps.Keys(snapshot(t, opts.Dir))))
	assert.True(t, r.Written)
	assert.True(t, r.SpecChanges)
	assert.False(t, r.Previous)
	assert.Equal(t, start.Add(certs.CAValidity), r.CA.NotAfter)
	assert.Equal(t, start.Add(certs.ServerValidity), r.Server.NotAfter)
	assert.Equal(t, opts.Names(), r.Server.DNSNames)
}

func TestOnlyTheOwnerCanRead(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	err := filepath.WalkDir(opts.Dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s has mode %#o", path, info.Mode().Perm())
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, "*\n", snapshot(t, opts.Dir)[certs.FileGitignore], "Git must not pick the keys up")
}

func TestAuthority(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	cas := parsePEM(t, bundle(t, opts.Dir))
	require.Len(t, cas, 1)
	ca := cas[0]
	assert.True(t, ca.IsCA)
	assert.True(t, ca.BasicConstraintsValid)
	assert.True(t, ca.MaxPathLenZero, "it signs servers, not authorities")
	assert.Equal(t, x509.KeyUsageCertSign, ca.KeyUsage)
	assert.IsType(t, &ecdsa.PublicKey{}, ca.PublicKey)
	assert.Equal(t, snapshot(t, opts.Dir)[certs.FileCACert], bundle(t, opts.Dir))
}

func TestServerCertificate(t *testing.T) {
	opts := options(t)
	opts.ExtraNames = []string{"hooks.example.com", "127.0.0.1", "webhooks.egress-proxies"}
	ensure(t, opts, start)
	cert := serverCert(t, opts.Dir)
	assert.Equal(t, []string{"webhooks.egress-proxies.svc", "webhooks.egress-proxies.svc.cluster.local", "webhooks.egress-proxies", "hooks.example.com"}, cert.DNSNames)
	require.Len(t, cert.IPAddresses, 1)
	assert.Equal(t, "127.0.0.1", cert.IPAddresses[0].String())
	assert.False(t, cert.IsCA)
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, cert.ExtKeyUsage, "no client of anything")
	assert.Equal(t, start.Add(certs.ServerValidity), cert.NotAfter)
	assert.Equal(t, corev1.SecretTypeTLS, secret(t, opts.Dir, certs.FileTLS).Type)
}

// A real TLS server with the Secret, a real client with the patch's bundle.
func TestHandshake(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	tlsSecret, trusted := secret(t, opts.Dir, certs.FileTLS), bundle(t, opts.Dir)
	other := options(t)
	ensure(t, other, start)

	for _, host := range opts.Names() {
		assert.NoError(t, handshake(t, tlsSecret, trusted, host, start), host)
	}
	assert.ErrorContains(t, handshake(t, tlsSecret, trusted, "discovery.egress-proxies.svc", start), "valid for")
	assert.ErrorContains(t, handshake(t, tlsSecret, bundle(t, other.Dir), opts.Names()[0], start), "unknown authority")
	assert.ErrorContains(t, handshake(t, tlsSecret, trusted, opts.Names()[0], start.Add(certs.ServerValidity+time.Second)), "expired")
	assert.NoError(t, handshake(t, tlsSecret, trusted, opts.Names()[0], start.Add(-59*time.Minute)), "a clock that is behind")
}

func TestServerNeverOutlivesItsAuthority(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	r := ensure(t, with(opts, certs.RenewServer), start.Add(certs.CAValidity-100*day))
	assert.Equal(t, r.CA.NotAfter, r.Server.NotAfter)
}

func TestPatch(t *testing.T) {
	opts := options(t)
	opts.Namespace, opts.Service, opts.Port = "crawl", "hooks", 9443
	ensure(t, opts, start)
	p := readPatch(t, opts.Dir)
	assert.Equal(t, metacontroller.ControllerAPIVersion, p.APIVersion)
	assert.Equal(t, metacontroller.ControllerKind, p.Kind)
	assert.Equal(t, metacontroller.ControllerName, p.Metadata.Name)
	endpoint := p.Spec.EndpointConfigs[0]
	assert.Equal(t, "hooks.crawl.svc:9443", endpoint.Host)
	assert.Equal(t, "Bearer", endpoint.Authorization.Type)
	assert.Equal(t, certs.SecretToken, endpoint.Authorization.SecretRef.Name)
	assert.Equal(t, "crawl", endpoint.Authorization.SecretRef.Namespace)
	assert.Equal(t, "crawl", secret(t, opts.Dir, certs.FileToken).Namespace)
	assert.Equal(t, "crawl", secret(t, opts.Dir, certs.FileTLS).Namespace)
}

func TestToken(t *testing.T) {
	opts := options(t)
	r := ensure(t, opts, start)
	require.Equal(t, []string{shown(t, opts.Dir)}, accepted(t, opts.Dir))
	assert.GreaterOrEqual(t, len(shown(t, opts.Dir)), 52, "26 characters of base32 are 130 bits")
	assert.Equal(t, "token-"+r.TokenID, readPatch(t, opts.Dir).Spec.EndpointConfigs[0].Authorization.SecretRef.Key)

	other := options(t)
	ensure(t, other, start)
	assert.NotEqual(t, shown(t, opts.Dir), shown(t, other.Dir))
}

func TestAgainChangesNothing(t *testing.T) {
	opts := options(t)
	first := ensure(t, opts, start)
	before := snapshot(t, opts.Dir)
	again := ensure(t, opts, start.Add(100*day))
	assert.Equal(t, before, snapshot(t, opts.Dir))
	assert.False(t, again.Written)
	assert.False(t, again.SpecChanges)
	assert.Equal(t, first.CA.Raw, again.CA.Raw)
	assert.Equal(t, first.TokenID, again.TokenID)
	assert.Equal(t, first.Server.DNSNames, again.Server.DNSNames)
}

func TestAnEmptyFolderIsFine(t *testing.T) {
	opts := options(t)
	require.NoError(t, os.Mkdir(opts.Dir, 0o755))
	assert.True(t, ensure(t, opts, start).Written)
}

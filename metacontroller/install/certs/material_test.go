package certs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

// managers returns an external authority, PEM.
func managers(t *testing.T) string {
	t.Helper()
	opts := options(t)
	ensure(t, opts, start)
	return bundle(t, opts.Dir)
}

func TestSomebodyElsesAuthority(t *testing.T) {
	opts, ca := options(t), managers(t)
	opts.CA = parsePEM(t, ca)
	r := ensure(t, opts, start)

	files := snapshot(t, opts.Dir)
	assert.NotContains(t, files, certs.FileTLS, "cert-manager writes that Secret")
	assert.NotContains(t, files, certs.FileCAKey)
	assert.NotContains(t, files[certs.FileKustomization], certs.FileTLS)
	assert.Equal(t, ca, bundle(t, opts.Dir))
	assert.Nil(t, r.Server)
	assert.NotEmpty(t, shown(t, opts.Dir))
	assert.False(t, ensure(t, opts, start).Written)
}

func TestSomebodyElsesAuthorityRotates(t *testing.T) {
	opts, first, second := options(t), managers(t), managers(t)
	opts.CA = parsePEM(t, first)
	ensure(t, opts, start)
	token := shown(t, opts.Dir)

	opts.CA = parsePEM(t, second)
	_, err := certs.Ensure(opts, start)
	require.ErrorIs(t, err, certs.ErrInUse)
	require.ErrorContains(t, err, "--ca-file holds another authority")

	for range 2 { // again is the same
		r := ensure(t, with(opts, certs.RenewCA), start)
		assert.True(t, r.Previous)
		assert.Equal(t, second+first, bundle(t, opts.Dir))
		assert.Equal(t, token, shown(t, opts.Dir))
	}
	opts.DropPrevious = true
	ensure(t, opts, start)
	assert.Equal(t, second, bundle(t, opts.Dir))
}

func TestTokenUnderSomebodyElsesAuthority(t *testing.T) {
	opts := options(t)
	opts.CA = parsePEM(t, managers(t))
	ensure(t, opts, start)
	token := shown(t, opts.Dir)

	without := with(opts, certs.RenewToken)
	without.CA = nil
	_, err := certs.Ensure(without, start)
	require.ErrorIs(t, err, certs.ErrInUse, "it would leave certificates out that cert-manager does not know of")

	ensure(t, with(opts, certs.RenewToken), start)
	assert.Contains(t, accepted(t, opts.Dir), token)
	assert.NotEqual(t, token, shown(t, opts.Dir))
}

func TestFromOursToTheirsAndBack(t *testing.T) {
	opts, theirs := options(t), managers(t)
	ensure(t, opts, start)
	ours := bundle(t, opts.Dir)

	opts.CA = parsePEM(t, theirs)
	ensure(t, with(opts, certs.RenewCA), start)
	assert.Equal(t, theirs+ours, bundle(t, opts.Dir))
	assert.NotContains(t, snapshot(t, opts.Dir), certs.FileCAKey)

	opts.CA = nil
	ensure(t, with(opts, certs.RenewCA), start)
	assert.True(t, strings.HasSuffix(bundle(t, opts.Dir), theirs))
	assert.NotContains(t, bundle(t, opts.Dir), ours)
	assert.False(t, ensure(t, opts, start).Written)
}

func TestExpiredAuthorityIsRefused(t *testing.T) {
	opts := options(t)
	opts.CA = parsePEM(t, managers(t))
	_, err := certs.Ensure(opts, start.Add(certs.CAValidity+day))
	require.ErrorContains(t, err, "--ca-file: authority")
	require.ErrorContains(t, err, "expired on 2036-02-27")
}

func TestParseAuthoritiesRefuses(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	files := snapshot(t, opts.Dir)
	ca, key := files[certs.FileCACert], files[certs.FileCAKey]
	server := string(secret(t, opts.Dir, certs.FileTLS).Data["tls.crt"])
	for name, tt := range map[string]struct{ pem, says string }{
		"nothing":         {"", "does not contain any valid"},
		"text":            {"hello", "does not contain any valid"},
		"a private key":   {key, "found a private key"},
		"a key after":     {ca + key, "found a private key"},
		"a server's":      {server, "not one of a certificate authority"},
		"cut certificate": {strings.Replace(ca, "\nMII", "\nMIIA", 1), "does not contain any valid"},
		"a cut second":    {ca + ca[:len(ca)/2], "1 of 2 PEM blocks are certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := certs.ParseAuthorities([]byte(tt.pem))
			require.ErrorContains(t, err, tt.says)
			for line := range strings.Lines(key) {
				if !strings.HasPrefix(line, "---") {
					assert.NotContains(t, err.Error(), strings.TrimSpace(line))
				}
			}
		})
	}
}

func TestParseAuthoritiesSkipsText(t *testing.T) {
	ca := managers(t)
	assert.Equal(t, parsePEM(t, ca), parsePEM(t, "subject=CN = x\n"+ca+"hello"))
}

func FuzzParseAuthorities(f *testing.F) {
	opts := certs.DefaultOptions()
	opts.Dir = f.TempDir()
	_, err := certs.Ensure(opts, start)
	require.NoError(f, err)
	ca, err := os.ReadFile(filepath.Join(opts.Dir, certs.FileCACert))
	require.NoError(f, err)
	f.Add(ca)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte(" \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := certs.ParseAuthorities(data)
		if (err == nil) != (len(parsed) > 0) {
			t.Fatalf("%d authorities and error %v", len(parsed), err)
		}
		for _, cert := range parsed {
			if !cert.IsCA {
				t.Fatal("not an authority")
			}
		}
	})
}

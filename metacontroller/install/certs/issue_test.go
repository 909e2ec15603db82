package certs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

// later is when the first server certificate is due.
var later = start.Add(certs.ServerValidity - 20*day)

func TestRenewServer(t *testing.T) {
	opts := options(t)
	first := ensure(t, opts, start)
	before := snapshot(t, opts.Dir)
	r := ensure(t, with(opts, certs.RenewServer), later)

	assert.True(t, r.Written)
	assert.False(t, r.SpecChanges, "Metacontroller must not have to reload")
	assert.Equal(t, first.CA.Raw, r.CA.Raw)
	assert.Equal(t, first.TokenID, r.TokenID)
	assert.Equal(t, later.Add(certs.ServerValidity), r.Server.NotAfter)
	after := snapshot(t, opts.Dir)
	for _, same := range []string{certs.FilePatch, certs.FileToken, certs.FileCACert, certs.FileCAKey} {
		assert.Equal(t, before[same], after[same], same)
	}
	assert.NotEqual(t, before[certs.FileTLS], after[certs.FileTLS])
	assert.NoError(t, handshake(t, secret(t, opts.Dir, certs.FileTLS), bundle(t, opts.Dir), opts.Names()[0], later.Add(300*day)))
	assert.False(t, ensure(t, opts, later).Written)
}

func TestRenewServerTakesNewNames(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	opts.ExtraNames = []string{"hooks.example.com"}
	_, err := certs.Ensure(opts, start)
	require.ErrorIs(t, err, certs.ErrInUse)
	require.ErrorContains(t, err, "not valid for hooks.example.com")
	assert.Contains(t, ensure(t, with(opts, certs.RenewServer), start).Server.DNSNames, "hooks.example.com")
}

// Both sides can be updated in either order: webhooks accepts both tokens, and each
// token has its own key for Metacontroller.
func TestRenewToken(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	oldToken, oldRef := shown(t, opts.Dir), readPatch(t, opts.Dir).Spec.EndpointConfigs[0].Authorization.SecretRef
	before := snapshot(t, opts.Dir)
	r := ensure(t, with(opts, certs.RenewToken), start)

	assert.True(t, r.SpecChanges, "only an edit of the spec makes Metacontroller read the token")
	assert.True(t, r.Previous)
	assert.NotEqual(t, oldToken, shown(t, opts.Dir))
	assert.Equal(t, []string{shown(t, opts.Dir), oldToken}, accepted(t, opts.Dir))
	data := secret(t, opts.Dir, certs.FileToken).Data
	assert.Equal(t, oldToken, string(data[oldRef.Key]), "the old patch must go on working until the new one is applied")
	assert.Equal(t, before[certs.FileTLS], snapshot(t, opts.Dir)[certs.FileTLS])
	assert.Equal(t, before[certs.FileCAKey], snapshot(t, opts.Dir)[certs.FileCAKey])

	opts.DropPrevious = true
	r = ensure(t, opts, start)
	assert.True(t, r.Written)
	assert.False(t, r.SpecChanges)
	assert.False(t, r.Previous)
	assert.Equal(t, []string{shown(t, opts.Dir)}, accepted(t, opts.Dir))
	assert.NotContains(t, secret(t, opts.Dir, certs.FileToken).Data, oldRef.Key)
	assert.False(t, ensure(t, opts, start).Written, "there is nothing more to drop")
}

func TestTokensDoNotPileUp(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	var seen []string
	for range 4 {
		seen = append(seen, shown(t, opts.Dir))
		ensure(t, with(opts, certs.RenewToken), start)
	}
	assert.Equal(t, []string{shown(t, opts.Dir), seen[3]}, accepted(t, opts.Dir))
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(seen))), 4)
}

// Metacontroller with the new bundle trusts the old and the new certificate.
func TestRenewCA(t *testing.T) {
	opts := options(t)
	first := ensure(t, opts, start)
	oldTLS, oldBundle, host := secret(t, opts.Dir, certs.FileTLS), bundle(t, opts.Dir), opts.Names()[0]
	token := shown(t, opts.Dir)
	r := ensure(t, with(opts, certs.RenewCA), start.Add(day))
	newTLS, both := secret(t, opts.Dir, certs.FileTLS), bundle(t, opts.Dir)

	assert.True(t, r.SpecChanges)
	assert.True(t, r.Previous)
	assert.NotEqual(t, first.CA.Raw, r.CA.Raw)
	assert.Equal(t, token, shown(t, opts.Dir))
	now := start.Add(day)
	assert.NoError(t, handshake(t, oldTLS, both, host, now))
	assert.NoError(t, handshake(t, newTLS, both, host, now))
	assert.Error(t, handshake(t, newTLS, oldBundle, host, now), "the test would pass with one CA")
	assert.False(t, ensure(t, opts, now).Written)

	opts.DropPrevious = true
	assert.True(t, ensure(t, opts, now).SpecChanges)
	assert.Error(t, handshake(t, oldTLS, bundle(t, opts.Dir), host, now))
	assert.NoError(t, handshake(t, newTLS, bundle(t, opts.Dir), host, now))
	assert.NotContains(t, snapshot(t, opts.Dir), certs.FilePreviousCA)
}

func TestReplace(t *testing.T) {
	for name, drop := range map[string]bool{"rotation": false, "stolen key": true} {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			ensure(t, opts, start)
			oldToken, oldTLS := shown(t, opts.Dir), secret(t, opts.Dir, certs.FileTLS)
			opts.DropPrevious = drop
			r := ensure(t, with(opts, certs.RenewAll), start)
			assert.Equal(t, !drop, r.Previous)
			assert.NotEqual(t, oldToken, shown(t, opts.Dir))
			assert.Equal(t, !drop, slices.Contains(accepted(t, opts.Dir), oldToken))
			assert.Equal(t, !drop, handshake(t, oldTLS, bundle(t, opts.Dir), opts.Names()[0], start) == nil)
			assert.NoError(t, handshake(t, secret(t, opts.Dir, certs.FileTLS), bundle(t, opts.Dir), opts.Names()[0], start))
		})
	}
}

func TestRenewNothing(t *testing.T) {
	for _, action := range []certs.Action{certs.RenewServer, certs.RenewToken, certs.RenewCA} {
		_, err := certs.Ensure(with(options(t), action), start)
		require.ErrorContains(t, err, "nothing to renew", action)
	}
	assert.True(t, ensure(t, with(options(t), certs.RenewAll), start).Written, "--renew all on nothing is a first run")
}

func TestAnAuthorityThatIsDueCannotSign(t *testing.T) {
	opts := options(t)
	ensure(t, opts, start)
	end := start.Add(certs.CAValidity)
	for _, now := range []time.Time{end.Add(-10 * day), end.Add(day)} {
		_, err := certs.Ensure(with(opts, certs.RenewServer), now)
		require.ErrorIs(t, err, certs.ErrInUse)
		require.ErrorContains(t, err, "--renew ca")
	}
	assert.True(t, ensure(t, with(opts, certs.RenewCA), end.Add(day)).Written)
}

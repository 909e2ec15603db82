package certs_test

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

func edit(t *testing.T, dir, name string, change func(string) string) {
	t.Helper()
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(change(string(content))), 0o600))
}

// For every defect of a folder in use the error contains the defect and the remedy,
// no file is changed, and --renew all repairs the folder.
func TestKeepRefuses(t *testing.T) {
	replaced := func(content string) func(string) string { return func(string) string { return content } }
	tests := map[string]struct {
		damage func(t *testing.T, opts *certs.Options)
		after  time.Duration
		says   string
	}{
		"server due":      {after: certs.ServerValidity - 29*day, says: "the server certificate expires soon, on 2027-03-01"},
		"server expired":  {after: certs.ServerValidity + day, says: "the server certificate expired on"},
		"authority due":   {after: certs.CAValidity - day, says: "the authority's certificate expires soon"},
		"other namespace": {damage: func(_ *testing.T, o *certs.Options) { o.Namespace = "other" }, says: "not valid for webhooks.other.svc"},
		"other port":      {damage: func(_ *testing.T, o *certs.Options) { o.Port = 1 }, says: "compositecontroller-patch.yaml: not what this run writes"},
		"edited patch": {damage: func(t *testing.T, o *certs.Options) {
			edit(t, o.Dir, certs.FilePatch, func(s string) string { return strings.Replace(s, "Bearer", "Token", 1) })
		}, says: certs.FilePatch},
		"lost patch": {damage: func(t *testing.T, o *certs.Options) {
			require.NoError(t, os.Remove(filepath.Join(o.Dir, certs.FilePatch)))
		}, says: certs.FilePatch},
		"lost authority": {damage: func(t *testing.T, o *certs.Options) {
			require.NoError(t, os.Remove(filepath.Join(o.Dir, certs.FileCACert)))
		}, says: "ca.crt"},
		"lost certificate": {damage: func(t *testing.T, o *certs.Options) {
			require.NoError(t, os.Remove(filepath.Join(o.Dir, certs.FileTLS)))
		}, says: certs.FileTLS},
		"no YAML":        {damage: func(t *testing.T, o *certs.Options) { edit(t, o.Dir, certs.FileToken, replaced("\t")) }, says: "not the manifest of a Secret"},
		"no token":       {damage: func(t *testing.T, o *certs.Options) { edit(t, o.Dir, certs.FileToken, replaced("kind: Secret")) }, says: "want one token, or two during a rotation, under token; found 0"},
		"junk authority": {damage: func(t *testing.T, o *certs.Options) { edit(t, o.Dir, certs.FileCACert, replaced("junk")) }, says: "ca.crt: data does not contain any valid"},
		"junk key":       {damage: func(t *testing.T, o *certs.Options) { edit(t, o.Dir, certs.FileCAKey, replaced("junk")) }, says: "ca.key does not fit ca.crt: tls: failed to find any PEM data"},
		"another's key": {damage: func(t *testing.T, o *certs.Options) {
			stranger := options(t)
			ensure(t, stranger, start)
			edit(t, o.Dir, certs.FileCAKey, replaced(snapshot(t, stranger.Dir)[certs.FileCAKey]))
		}, says: "ca.key does not fit ca.crt: tls: private key does not match"},
		"killed half-way": {damage: func(t *testing.T, o *certs.Options) {
			stranger := options(t)
			ensure(t, stranger, start)
			edit(t, o.Dir, certs.FileTLS, replaced(snapshot(t, stranger.Dir)[certs.FileTLS]))
		}, says: "the server certificate is not the authority's"},
		"open to others": {damage: func(t *testing.T, o *certs.Options) {
			require.NoError(t, os.Chmod(filepath.Join(o.Dir, certs.FileCAKey), 0o644))
		}, says: "ca.key has mode 0644"},
		"another authority": {damage: func(t *testing.T, o *certs.Options) {
			stranger := options(t)
			ensure(t, stranger, start)
			o.CA = parsePEM(t, bundle(t, stranger.Dir))
		}, says: "it was made without --ca-file, and this run is with --ca-file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			ensure(t, opts, start)
			if tt.damage != nil {
				tt.damage(t, &opts)
			}
			before, now := snapshot(t, opts.Dir), start.Add(tt.after)

			_, err := certs.Ensure(opts, now)
			require.ErrorIs(t, err, certs.ErrInUse)
			require.ErrorContains(t, err, tt.says)
			require.ErrorContains(t, err, "--renew all")
			require.Equal(t, before, snapshot(t, opts.Dir))

			require.True(t, ensure(t, with(opts, certs.RenewAll), now).Written)
			assert.False(t, ensure(t, opts, now).Written, "now it is sound")
		})
	}
}

func TestOtherPeoplesFolders(t *testing.T) {
	for name, file := range map[string]string{"some file": "passwd", "their kustomization": certs.FileKustomization} {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			require.NoError(t, os.Mkdir(opts.Dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(opts.Dir, file), []byte("theirs"), 0o644))
			for _, action := range []certs.Action{certs.Keep, certs.RenewServer, certs.RenewToken, certs.RenewCA, certs.RenewAll} {
				_, err := certs.Ensure(with(opts, action), start)
				require.ErrorIs(t, err, certs.ErrForeign, action)
				require.ErrorContains(t, err, file)
			}
			assert.Equal(t, map[string]string{file: "theirs"}, snapshot(t, opts.Dir))
		})
	}
}

func TestAFileInPlaceOfAFolder(t *testing.T) {
	opts := options(t)
	require.NoError(t, os.WriteFile(opts.Dir, nil, 0o600))
	_, err := certs.Ensure(opts, start)
	require.ErrorContains(t, err, "--out")
}

func TestOptionsRefused(t *testing.T) {
	tests := map[string]struct {
		set  func(*certs.Options)
		says string
	}{
		"no folder":      {func(o *certs.Options) { o.Dir = "" }, `--out ""`},
		"root":           {func(o *certs.Options) { o.Dir = "/" }, `--out "/"`},
		"namespace":      {func(o *certs.Options) { o.Namespace = "Egress" }, `--namespace "Egress"`},
		"service":        {func(o *certs.Options) { o.Service = "a.b" }, `--service "a.b"`},
		"port":           {func(o *certs.Options) { o.Port = -1 }, "--port -1"},
		"big port":       {func(o *certs.Options) { o.Port = 65536 }, "--port 65536"},
		"URL as name":    {func(o *certs.Options) { o.ExtraNames = []string{"https://x"} }, `--extra-names "https://x"`},
		"unknown action": {func(o *certs.Options) { o.Action = "cert" }, `--renew "cert"`},
		"their server":   {func(o *certs.Options) { o.Action, o.CA = certs.RenewServer, []*x509.Certificate{{}} }, "--renew server"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			tt.set(&opts)
			_, err := certs.Ensure(opts, start)
			require.ErrorContains(t, err, tt.says)
			require.NoDirExists(t, filepath.Join(opts.Dir, "tls"))
		})
	}
	opts := certs.Options{Port: -1, Action: "cert"}
	err := opts.Validate()
	for _, flag := range []string{"--out", "--namespace", "--service", "--port", "--renew"} {
		assert.ErrorContains(t, err, flag, "all at once")
	}
}

// Errors and results never contain secrets.
func TestNothingSecretIsSaid(t *testing.T) {
	var said []string
	hear := func(opts certs.Options, now time.Time) {
		r, err := certs.Ensure(opts, now)
		if err != nil {
			said = append(said, err.Error())
		}
		said = append(said, fmt.Sprintf("%+v", r))
	}
	opts := options(t)
	ensure(t, opts, start)
	canaries := secrets(t, opts.Dir)
	require.Greater(t, len(canaries), 8)
	for _, action := range []certs.Action{certs.Keep, certs.RenewServer, certs.RenewToken, certs.RenewCA, certs.RenewAll} {
		hear(with(opts, action), start)
		hear(with(opts, action), later)
		canaries = append(canaries, secrets(t, opts.Dir)...)
	}
	// Keys and tokens in the wrong files.
	files := snapshot(t, opts.Dir)
	for _, to := range []string{certs.FileCACert, certs.FileCAKey, certs.FileTLS, certs.FileToken, certs.FilePatch} {
		for _, from := range []string{certs.FileCAKey, certs.FileTLS, certs.FileToken} {
			edit(t, opts.Dir, to, func(string) string { return files[from] })
			hear(opts, start)
			edit(t, opts.Dir, to, func(string) string { return files[from][:len(files[from])/2] })
			hear(opts, start)
			edit(t, opts.Dir, to, func(string) string { return files[to] })
		}
	}
	all := strings.Join(said, "\n")
	require.Contains(t, all, "damaged")
	for _, canary := range canaries {
		if canary != "" {
			require.NotContains(t, all, canary)
		}
	}
}

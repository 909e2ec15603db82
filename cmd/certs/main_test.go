package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
)

func TestMain(m *testing.M) {
	if os.Getenv("CERTS_TEST_MAIN") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// certsAt runs the command at a time and returns its output.
func certsAt(now time.Time, in string, args ...string) (string, error) {
	var out bytes.Buffer
	err := run(args, strings.NewReader(in), &out, testclock.NewFakePassiveClock(now))
	return out.String(), err
}

func folder(t *testing.T) string { return filepath.Join(t.TempDir(), "tls") }

func TestLife(t *testing.T) {
	dir := folder(t)
	steps := []struct {
		args []string
		says []string
		not  string
	}{
		{nil, []string{"written", "until 2036-02-27", "until 2027-03-01", "webhooks.egress-proxies.svc", "kubectl apply -k"}, "previous"},
		{nil, []string{"is valid, nothing to do"}, "kubectl"},
		{[]string{"--renew", "server"}, []string{"written", "1. apply the Secrets"}, "CompositeController"},
		{[]string{"--renew", "token"}, []string{"1. apply the Secrets", "2. wait until", "3. apply the CompositeController", "--drop-previous"}, ""},
		{[]string{"--drop-previous"}, []string{"1. apply the Secrets"}, "previous"},
		{[]string{"--renew", "ca"}, []string{"1. apply the CompositeController", "--drop-previous"}, "wait until"},
		{[]string{"--renew", "all"}, []string{"hooks fail until then"}, ""},
		{[]string{"--drop-previous"}, []string{"apply the CompositeController"}, "previous"},
	}
	for _, step := range steps {
		out, err := certsAt(start, "", append([]string{"--out", dir}, step.args...)...)
		require.NoError(t, err, step.args)
		for _, s := range step.says {
			require.Contains(t, out, s, step.args)
		}
		if step.not != "" {
			require.NotContains(t, out, step.not, step.args)
		}
		requireNothingSecret(t, dir, out)
	}
}

func requireNothingSecret(t *testing.T, dir, out string) {
	t.Helper()
	for _, token := range strings.Fields(string(secret(t, dir, certs.FileToken).Data[certs.KeyToken])) {
		require.NotContains(t, out, token)
	}
	require.NotContains(t, out, "PRIVATE")
	key := strings.Split(string(secret(t, dir, certs.FileTLS).Data[corev1.TLSPrivateKeyKey]), "\n")
	require.NotContains(t, out, key[1])
}

func secret(t *testing.T, dir, name string) corev1.Secret {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	var s corev1.Secret
	require.NoError(t, yaml.Unmarshal(content, &s))
	return s
}

func TestSaysWhenRenewalIsDue(t *testing.T) {
	dir := folder(t)
	_, err := certsAt(start, "", "--out", dir)
	require.NoError(t, err)
	_, err = certsAt(start.Add(certs.ServerValidity), "", "--out", dir)
	require.ErrorIs(t, err, certs.ErrInUse)
	require.ErrorContains(t, err, "--renew server")
}

func TestCAFile(t *testing.T) {
	theirs, dir := folder(t), folder(t)
	_, err := certsAt(start, "", "--out", theirs)
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(theirs, certs.FileCACert))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))

	out, err := certsAt(start, string(ca), "--out", dir, "--ca-file", "-")
	require.NoError(t, err)
	require.NotContains(t, out, "certificate webhooks")
	require.NoFileExists(t, filepath.Join(dir, certs.FileTLS))
	out, err = certsAt(start, "", "--out", dir, "--ca-file", file)
	require.NoError(t, err)
	require.Contains(t, out, "nothing to do", "the same by another way")
	out, err = certsAt(start, "", "--out", dir, "--ca-file", file, "--renew", "token")
	require.NoError(t, err)
	require.NotContains(t, out, certs.FileTLS, "there is none to apply")
}

func TestRefusedFlags(t *testing.T) {
	key, err := os.ReadFile(filepath.Join(made(t), certs.FileCAKey))
	require.NoError(t, err)
	tests := map[string]struct {
		args []string
		in   string
		says string
	}{
		"unknown thing":    {args: []string{"--renew", "cert"}, says: `--renew "cert": want server, token, ca or all`},
		"keep":             {args: []string{"--renew", "keep"}, says: `--renew "keep"`},
		"their server":     {args: []string{"--renew", "server", "--ca-file", filepath.Join(made(t), certs.FileCACert)}, says: "the external authority makes"},
		"no CA file":       {args: []string{"--ca-file", "/nowhere/ca.crt"}, says: "--ca-file: open /nowhere/ca.crt"},
		"a key":            {args: []string{"--ca-file", "-"}, in: string(key), says: "--ca-file: found a private key"},
		"endless input":    {args: []string{"--ca-file", "-"}, in: strings.Repeat("x", maxCAFile+1), says: "larger than 1 MiB"},
		"negative port":    {args: []string{"--port", "-8443"}, says: "--port -8443"},
		"no number":        {args: []string{"--port", "https"}, says: "port"},
		"bad name":         {args: []string{"--extra-names", "a.example.com, *"}, says: `--extra-names "*"`},
		"positional":       {args: []string{"tls"}, says: `unexpected argument "tls"`},
		"several at once":  {args: []string{"--port", "0", "--namespace", "_"}, says: `--namespace "_"`},
		"missing argument": {args: []string{"--out"}, says: "out"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := certsAt(start, tt.in, append([]string{"--out", folder(t)}, tt.args...)...)
			require.ErrorContains(t, err, tt.says)
			require.Empty(t, out)
			assert.NotContains(t, err.Error(), strings.Split(string(key), "\n")[1])
		})
	}
}

func made(t *testing.T) string {
	t.Helper()
	dir := folder(t)
	_, err := certsAt(start, "", "--out", dir)
	require.NoError(t, err)
	return dir
}

func TestHelp(t *testing.T) {
	out, err := certsAt(start, "", "--help")
	require.ErrorIs(t, err, flags.ErrHelp)
	for _, want := range []string{"--out", "--ca-file", "PX_RENEW", "--drop-previous", "never"} {
		assert.Contains(t, out, want)
	}
}

// webhooks accepts the mounted Secrets: both tokens of a rotation, and the
// certificate.
func TestWebhooksTakesThem(t *testing.T) {
	dir := made(t)
	old := strings.TrimSpace(string(secret(t, dir, certs.FileToken).Data[certs.KeyToken]))
	_, err := certsAt(start, "", "--out", dir, "--renew", "token")
	require.NoError(t, err)
	mounted, log := t.TempDir(), slog.New(slog.DiscardHandler)
	for _, s := range []corev1.Secret{secret(t, dir, certs.FileToken), secret(t, dir, certs.FileTLS)} {
		for key, value := range s.Data {
			require.NoError(t, os.WriteFile(filepath.Join(mounted, key), value, 0o600))
		}
	}
	tokens, err := config.NewBearerTokens(filepath.Join(mounted, certs.KeyToken), log)
	require.NoError(t, err)
	accepts := func(token string) bool {
		r := httptest.NewRequest(http.MethodPost, "/hooks/sync", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		return tokens.Accepts(r)
	}
	current := strings.Fields(string(secret(t, dir, certs.FileToken).Data[certs.KeyToken]))[0]
	assert.True(t, accepts(current))
	assert.True(t, accepts(old))
	assert.False(t, accepts(old[:len(old)-1]))
	_, err = config.TLSConfig(filepath.Join(mounted, corev1.TLSCertKey), filepath.Join(mounted, corev1.TLSPrivateKeyKey), log)
	require.NoError(t, err)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestReportThatCannotBeWritten(t *testing.T) {
	err := run([]string{"--out", folder(t)}, strings.NewReader(""), fullDisk{}, testclock.NewFakePassiveClock(start))
	require.ErrorContains(t, err, "no space left")
}

// The process itself: exit codes, output streams, environment.
func TestProcess(t *testing.T) {
	dir := folder(t)
	command := func(env ...string) (string, string, int) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append([]string{"CERTS_TEST_MAIN=1"}, env...)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil {
			require.ErrorAs(t, err, &exit)
		}
		return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
	}
	out, errOut, code := command("PX_OUT=" + dir)
	require.Zero(t, code, errOut)
	require.Contains(t, out, dir)
	require.Empty(t, errOut)

	out, errOut, code = command("PX_OUT="+dir, "PX_PORT=1")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, errOut, "certs: refusing to overwrite")
}

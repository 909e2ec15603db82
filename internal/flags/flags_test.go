package flags

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseTakesTheFlagThenTheEnvironmentThenTheDefault(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want time.Duration
	}{
		"default":              {want: time.Minute},
		"environment":          {env: "2m", want: 2 * time.Minute},
		"flag over everything": {args: []string{"--drift-poll", "3m"}, env: "2m", want: 3 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("PX_DRIFT_POLL", tt.env)
			}
			fs := NewSet("webhooks", "intro", &bytes.Buffer{})
			got := fs.Duration("drift-poll", time.Minute, "how often")
			require.NoError(t, Parse(fs, tt.args))
			assert.Equal(t, tt.want, *got)
		})
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want []string
	}{
		"unknown flag":     {args: []string{"--no-such"}, want: []string{"no-such", "webhooks --help"}},
		"bad value":        {args: []string{"--drift-poll", "soon"}, want: []string{"drift-poll", "soon"}},
		"bad environment":  {env: "soon", want: []string{"drift-poll", "PX_DRIFT_POLL"}},
		"stray positional": {args: []string{"drift-poll=1m"}, want: []string{`unexpected argument "drift-poll=1m"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("PX_DRIFT_POLL", tt.env)
			}
			fs := NewSet("webhooks", "intro", &bytes.Buffer{})
			fs.Duration("drift-poll", time.Minute, "how often")
			err := Parse(fs, tt.args)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestHelpShowsIntroFlagsDefaultsAndVariables(t *testing.T) {
	var out bytes.Buffer
	fs := NewSet("prober", "Checks proxies.", &out)
	var c Common
	c.Register(fs, ":9090")
	require.ErrorIs(t, Parse(fs, []string{"--help"}), ErrHelp)
	for _, want := range []string{"Checks proxies.", "--ops-addr address [PX_OPS_ADDR]", "(default :9090)", "--log-format", "--version"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("PX_VERSION", "1.2.3") // somebody else's, and no flag of ours
	var out bytes.Buffer
	fs := NewSet("prober", "Checks proxies.", &out)
	require.NoError(t, Parse(fs, nil))
	for _, args := range [][]string{{"--version"}, {"-version"}, {"--no-such", "--version"}} {
		out.Reset()
		require.ErrorIs(t, Parse(fs, args), ErrHelp)
		assert.Regexp(t, `^prober \S+ \(commit \S+, go\S+, \S+\)\n$`, out.String())
	}
}

func TestListenable(t *testing.T) {
	for _, addr := range []string{":8080", "127.0.0.1:0", "[::1]:9090", "localhost:http"} {
		assert.True(t, Listenable(addr), addr)
	}
	for _, addr := range []string{"", "8080", ":", "127.0.0.1", "::1:80"} {
		assert.False(t, Listenable(addr), addr)
	}
}

func TestCommonNamesEverythingThatIsWrong(t *testing.T) {
	parsed := func(args ...string) error {
		var c Common
		fs := NewSet("prober", "intro", &bytes.Buffer{})
		c.Register(fs, ":8082")
		require.NoError(t, Parse(fs, args))
		return c.Validate()
	}
	require.NoError(t, parsed())
	err := parsed("--ops-addr", "8082", "--log-level", "loud")
	assert.ErrorContains(t, err, `--ops-addr "8082": want host:port`)
	assert.ErrorContains(t, err, `--log-level "loud"`)
	assert.ErrorContains(t, parsed("--log-format", "xml"), `--log-format "xml"`)
}

func TestLoggerHonoursTheFlags(t *testing.T) {
	var l Logging
	fs := NewSet("stack", "intro", &bytes.Buffer{})
	l.Register(fs, "warn", "text")
	require.NoError(t, Parse(fs, []string{"--log-level", "error"}))
	var out bytes.Buffer
	log, err := l.Logger(&out)
	require.NoError(t, err)
	log.Warn("hidden")
	log.Error("shown")
	assert.NotContains(t, out.String(), "hidden")
	assert.Contains(t, out.String(), "msg=shown")
}

func TestListAddsUpValues(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		env  string
		want List
	}{
		"none":            {},
		"repeated":        {args: []string{"--zone", "a", "--zone", "b"}, want: List{"a", "b"}},
		"commas":          {args: []string{"--zone", "a, b,,"}, want: List{"a", "b"}},
		"environment":     {env: "a,b", want: List{"a", "b"}},
		"flag over it":    {args: []string{"--zone", "c"}, env: "a,b", want: List{"c"}},
		"nothing but air": {args: []string{"--zone", " , "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PX_ZONE", tt.env)
			var got List
			fs := NewSet("node", "intro", &bytes.Buffer{})
			fs.Var(&got, "zone", "where")
			require.NoError(t, Parse(fs, tt.args))
			assert.Equal(t, tt.want, got)
		})
	}
	assert.Equal(t, "a,b", (&List{"a", "b"}).String())
}

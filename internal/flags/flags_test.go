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
	for _, want := range []string{"Checks proxies.", "--ops-addr address [PX_OPS_ADDR]", "(default :9090)", "--log-format"} {
		assert.Contains(t, out.String(), want)
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

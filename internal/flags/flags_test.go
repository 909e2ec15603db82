package flags

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParsePrecedence(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want time.Duration
	}{
		"default":               {want: time.Minute},
		"environment":           {env: "2m", want: 2 * time.Minute},
		"flag over environment": {args: []string{"--drift-poll", "3m"}, env: "2m", want: 3 * time.Minute},
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

func TestParseErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want []string
	}{
		"unknown flag":     {args: []string{"--no-such"}, want: []string{"there is no flag --no-such; see webhooks --help"}},
		"no value":         {args: []string{"--drift-poll"}, want: []string{"--drift-poll needs a value; see"}},
		"bad duration":     {args: []string{"--drift-poll", "soon"}, want: []string{`--drift-poll "soon": want a duration, such as 30s or 5m; see`}},
		"bad number":       {args: []string{"--workers", "many"}, want: []string{`--workers "many": want a whole number; see`}},
		"too large":        {args: []string{"--workers", "99999999999999999999"}, want: []string{`--workers "99999999999999999999": want a whole number; see`}},
		"bad share":        {args: []string{"--share", "half"}, want: []string{`--share "half": want a number; see`}},
		"bad switch":       {args: []string{"--events=maybe"}, want: []string{`--events "maybe": want true or false; see`}},
		"own parser":       {args: []string{"--own", "hush"}, want: []string{"--own: want two words; see"}},
		"bad environment":  {env: "soon", want: []string{`PX_DRIFT_POLL "soon": want a duration, such as 30s or 5m; see`}},
		"both bad":         {args: []string{"--workers", "many"}, env: "soon", want: []string{`--workers "many": want`}},
		"stray positional": {args: []string{"drift-poll=1m"}, want: []string{`unexpected argument "drift-poll=..."; flags start with --`}},
		"swallowed flag":   {args: []string{"--dir", "--own=redis://:hush@h"}, want: []string{`--dir needs a value, and was given the next flag; see`}},
		"stray word":       {args: []string{"--workers=2", "start"}, want: []string{`unexpected argument "start"; flags start with --`}},
		"stray secret":     {args: []string{"--workers=2", "-", "redis://:hush@h"}, want: []string{`unexpected argument (number 2); flags start with --`}},
		"secret, undashed": {args: []string{"own=redis://:hush@h"}, want: []string{`unexpected argument "own=..."; flags start with --`}},
		"secret, 3 dashes": {args: []string{"--workers=2", "---own=redis://:hush@h"}, want: []string{"bad flag syntax: ---own...; see"}},
		"secret, colon":    {args: []string{"--own:redis://:hush@h"}, want: []string{"there is no flag --own...; see"}},
		"secret, two rows": {args: []string{"--own\nhush"}, want: []string{"there is no flag --own...; see"}},
		"secret, as value": {args: []string{"--workers", "--own=redis://:hush@h"}, want: []string{"--workers: want a whole number; see"}},
		"one dash":         {args: []string{"-own=redis://:hush@h"}, want: []string{"there is no flag -own...: flags start with --; see"}},
		"secret, variable": {env: "redis://:hush@h", want: []string{"PX_DRIFT_POLL: want a duration, such as 30s or 5m; see"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("PX_DRIFT_POLL", tt.env)
			}
			fs := NewSet("webhooks", "intro", &bytes.Buffer{})
			fs.Duration("drift-poll", time.Minute, "how often")
			fs.Int("workers", 1, "how many")
			fs.String("dir", "", "where")
			fs.Float64("share", 1, "how much")
			fs.Bool("events", true, "whether")
			fs.Func("own", "two words", func(string) error { return errors.New("want two words") })
			err := Parse(fs, tt.args)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
			assert.NotContains(t, err.Error(), "hush", "the value of a flag with its own parser may be a secret")
		})
	}
}

func TestHelp(t *testing.T) {
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
	t.Setenv("PX_VERSION", "1.2.3") // set by the image, and not a flag
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

func TestCommonValidate(t *testing.T) {
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

func TestList(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		env  string
		want List
	}{
		"none":         {},
		"repeated":     {args: []string{"--zone", "a", "--zone", "b"}, want: List{"a", "b"}},
		"commas":       {args: []string{"--zone", "a, b,,"}, want: List{"a", "b"}},
		"environment":  {env: "a,b", want: List{"a", "b"}},
		"flag over it": {args: []string{"--zone", "c"}, env: "a,b", want: List{"c"}},
		"only blanks":  {args: []string{"--zone", " , "}},
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

package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

func TestRunExplainsItself(t *testing.T) {
	t.Setenv("PX_REQUIRE_SQUID", "1") // as in CI
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":           {nil, "which command?"},
		"unknown command":      {[]string{"dance"}, `unknown command "dance"`},
		"unknown flag":         {[]string{"demo", "--fast"}, "fast"},
		"bad log level":        {[]string{"up", "--log-level", "loud"}, `--log-level "loud"`},
		"unknown strategy":     {[]string{"up", "--apply-strategy", "recreate"}, `--apply-strategy "recreate": want dynamic-apply or server-side-apply`},
		"contradicting flags":  {[]string{"demo", "--require-squid", "--squid", "builtin"}, "exclude each other"},
		"short campaign":       {[]string{"chaos", "--duration", "1m"}, "--duration 1m0s: want 2m15s or more"},
		"few proxies":          {[]string{"chaos", "--vms", "1"}, "--pods and --vms 5 to 200"},
		"no such history":      {[]string{"chaos", "--check", "/no/such/file"}, "/no/such/file"},
		"assets take no words": {[]string{"assets", "now"}, `unexpected argument "now"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), tt.args, &bytes.Buffer{})
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"demo", "--help"}, {"up", "-h"}, {"assets", "--help"}, {"chaos", "--help"}} {
		var out bytes.Buffer
		assert.ErrorIs(t, run(context.Background(), args, &out), flags.ErrHelp, args)
		assert.NotEmpty(t, out.String(), args)
	}
}

package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, want := range []string{"--subnet", "PX_CONNECT_PROXY", "--ops-addr", "neither root nor"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestRefusedOptions(t *testing.T) {
	good := []string{"--subnet", "127.41.7.0/24", "--root", "pods"}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	tests := map[string]struct {
		args []string
		says []string
	}{
		"nothing":       {nil, []string{"--subnet \"\"", "--root is missing"}},
		"real network":  {with("--subnet", "10.0.0.0/24"), []string{"--subnet", "127.0.0.0/8"}},
		"one address":   {with("--subnet", "127.0.0.9/32"), []string{"too small"}},
		"no name":       {with("--node-name", ""), []string{"--node-name is empty"}},
		"no squid":      {with("--squid", ""), []string{"--squid is empty"}},
		"missing squid": {with("--squid", "/nowhere/squid"), []string{"--squid /nowhere/squid"}},
		"missing built-in": {with("--squid", "builtin", "--connect-proxy", "/nowhere/connectproxy"),
			[]string{"--connect-proxy \"/nowhere/connectproxy\"", "make build"}},
		"missing kubeconfig": {with("--squid", "/bin/sh", "--kubeconfig", "/nowhere/kubeconfig"), []string{"/nowhere/kubeconfig"}},
		"log format":         {with("--log-format", "xml"), []string{"--log-format"}},
		"unknown flag":       {with("--subnets", "x"), []string{"subnets", "--help"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.args, io.Discard)
			require.Error(t, err)
			for _, s := range tt.says {
				assert.ErrorContains(t, err, s)
			}
		})
	}
}

func TestRootBecomesAbsolute(t *testing.T) {
	o, err := parseOptions([]string{"--subnet", "127.41.7.0/24", "--root", "pods"}, io.Discard)
	require.NoError(t, err)
	assert.True(t, len(o.root) > len("/pods") && o.root[0] == '/')
}

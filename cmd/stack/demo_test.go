package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDemo is the walk through the whole job. With PX_REQUIRE_SQUID=1 it fails
// when Pods run on the built-in proxy.
func TestDemo(t *testing.T) {
	r := newRig(t)
	c := r.start("demo")
	require.NoError(t, c.Wait(), c.out)
	assert.Contains(t, c.out.String(), "All 8 steps passed")
	assert.Contains(t, c.out.String(), "nothing is left")
	r.nothingLeft()
}

func TestDemoOnTheBuiltinProxy(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "PX_REQUIRE_SQUID=")
	c := r.start("demo", "--squid", "builtin")
	require.NoError(t, c.Wait(), c.out)
	assert.Contains(t, c.out.String(), "/connectproxy")
	assert.Contains(t, c.out.String(), "All 8 steps passed")
	r.nothingLeft()
}

func TestDemoThatRequiresSquidRejectsTheBuiltinProxy(t *testing.T) {
	r := newRig(t)
	c := r.start("demo", "--require-squid", "--squid", "builtin")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "--require-squid and --squid builtin exclude each other")
	assert.NotContains(t, c.out.String(), "== 1.", "it must not even start")
	r.nothingLeft()
}

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// TestDemoOnTheRealMetacontroller is the walk with it in the stand-in's place,
// under both of its strategies.
func TestDemoOnTheRealMetacontroller(t *testing.T) {
	program := upstreamtest.Program(t)
	for _, strategy := range upstream.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			r := newRig(t)
			r.env = append(r.env, upstream.ProgramEnv+"="+program)
			c := r.start("demo", "--apply-strategy", string(strategy))
			require.NoError(t, c.Wait(), c.out)
			assert.Contains(t, c.out.String(), "the real Metacontroller ("+program+", "+string(strategy)+")")
			assert.Contains(t, c.out.String(), "All 8 steps passed")
			r.nothingLeft()
		})
	}
}

func TestStandInRejectsServerSideApply(t *testing.T) {
	r := newRig(t)
	c := r.start("up", "--apply-strategy", "server-side-apply")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "the stand-in supports only dynamic-apply")
	r.nothingLeft()
}

func TestUpWithMissingMetacontrollerBinary(t *testing.T) {
	r := newRig(t)
	c := r.start("up", "--metacontroller", r.tmp+"/nowhere")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "the real Metacontroller")
	assert.Contains(t, c.out.String(), r.tmp+"/nowhere")
	assert.NotContains(t, c.out.String(), "API server", "it must not even start")
	r.nothingLeft()
}

// A Metacontroller that exits right after its start fails the stack.
func TestUpWithMetacontrollerThatExits(t *testing.T) {
	r := newRig(t)
	program := r.tmp + "/metacontroller"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho no such flag >&2\nexit 2\n"), 0o700))
	c := r.start("up", "--metacontroller", program)
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "metacontroller ended")
	assert.Contains(t, c.out.String(), "no such flag")
	r.noProcesses()
}

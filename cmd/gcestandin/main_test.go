package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, want := range []string{"--vm-command", "PX_VM_SUBNET", "keep it on loopback"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestRefusedOptions(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"subnet":          {"--vm-subnet x", `--vm-subnet "x"`},
		"wide subnet":     {"--vm-command true --root r --vm-subnet 10.0.0.0/8", "--vm-command: subnet 10.0.0.0/8"},
		"no root":         {"--vm-command true", "--root is missing"},
		"no zones":        {"--zones ,", "--zones is empty"},
		"no project":      {"--project=", "--project is empty"},
		"negative time":   {"--boot -1s", "must not be negative"},
		"bad template":    {"--root r --vm-command {{.X}}", "--vm-command: command"},
		"address":         {"--addr nowhere:x", "--addr nowhere:x"},
		"log format":      {"--log-format xml", "--log-format"},
		"several at once": {"--project= --zones=", "--zones is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, run(t.Context(), strings.Fields(tt.args), io.Discard), tt.want)
		})
	}
}

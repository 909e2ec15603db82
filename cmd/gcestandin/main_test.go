package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
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

// A VM of the process form is a process that listens on the VM's address.
func TestVMIsAProcessWithAnAddress(t *testing.T) {
	p := programtest.Start(t, run,
		"--addr", "127.0.0.1:0", "--boot", "100ms", "--shutdown", "0s", "--root", t.TempDir(),
		"--vm-subnet", "127.61.0.0/24", "--vm-command", "/bin/sh {{.UserData}}")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	addr := p.Address(t, "listening")

	const zone = "/compute/v1/projects/demo/zones/europe-west1-b/instances"
	body := `{"name":"vm","machineType":"zones/z/machineTypes/m","disks":[{"boot":true,"initializeParams":{"sourceImage":"i"}}],
		"networkInterfaces":[{"accessConfigs":[{"type":"ONE_TO_ONE_NAT"}]}],
		"metadata":{"items":[{"key":"user-data","value":"exec sleep 600"}]}}`
	require.Eventually(t, func() bool {
		resp, err := http.Post("http://"+addr+zone, "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + zone + "/vm")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var got struct {
			Status            string
			NetworkInterfaces []struct{ AccessConfigs []struct{ NatIP string } }
		}
		return json.NewDecoder(resp.Body).Decode(&got) == nil && got.Status == "RUNNING" &&
			got.NetworkInterfaces[0].AccessConfigs[0].NatIP == "127.61.0.1"
	}, 10*time.Second, 20*time.Millisecond)
}

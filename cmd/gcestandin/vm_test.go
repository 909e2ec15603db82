package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

const instances = "/compute/v1/projects/demo/zones/europe-west1-b/instances"

// insert inserts a VM with that user data and returns its address once it runs.
func insert(t *testing.T, addr, userData string) string {
	t.Helper()
	quoted, err := json.Marshal(userData)
	require.NoError(t, err)
	body := fmt.Sprintf(`{"name":"vm","machineType":"zones/z/machineTypes/m","disks":[{"boot":true,"initializeParams":{"sourceImage":"i"}}],
		"networkInterfaces":[{"accessConfigs":[{"type":"ONE_TO_ONE_NAT"}]}],
		"metadata":{"items":[{"key":"user-data","value":%s},{"key":"crawl-port","value":"3128"}]}}`, quoted)
	require.Eventually(t, func() bool {
		resp, err := http.Post("http://"+addr+instances, "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
	var ip string
	require.Eventually(t, func() bool { ip = natIP(addr); return ip != "" }, 20*time.Second, 20*time.Millisecond)
	return ip
}

// natIP is the VM's address in Compute's response, "" while it does not run.
func natIP(addr string) string {
	resp, err := http.Get("http://" + addr + instances + "/vm")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var got struct {
		Status            string
		NetworkInterfaces []struct{ AccessConfigs []struct{ NatIP string } }
	}
	if json.NewDecoder(resp.Body).Decode(&got) != nil || got.Status != "RUNNING" {
		return ""
	}
	return got.NetworkInterfaces[0].AccessConfigs[0].NatIP
}

func standIn(t *testing.T, subnet string) (addr string) {
	t.Helper()
	p := programtest.Start(t, run,
		"--addr", "127.0.0.1:0", "--boot", "100ms", "--shutdown", "0s", "--root", t.TempDir(),
		"--vm-subnet", subnet, "--vm-command", "/bin/sh {{.UserData}} {{.IP}} {{.Port}}")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return p.Address(t, "listening")
}

// A VM is a process that listens on the VM's address.
func TestVMIsAProcessWithAnAddress(t *testing.T) {
	assert.Equal(t, "127.61.0.1", insert(t, standIn(t, "127.61.0.0/24"), "exec sleep 600"))
}

// squidScript is user data that makes a VM a squid on its own address and port, for
// clients on this machine only.
const squidScript = `cat > squid.conf <<EOF
http_port $1:$2
acl here src 127.0.0.0/8
http_access allow here
http_access deny all
cache deny all
access_log none
cache_log /dev/null
pid_filename none
shutdown_lifetime 0 seconds
EOF
exec squid -N -f "$PWD/squid.conf"
`

func TestVMIsASquid(t *testing.T) {
	if _, err := exec.LookPath("squid"); err != nil {
		t.Skip("squid is not installed")
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello, ", r.Header.Get("Via"))
	}))
	defer target.Close()
	addr := standIn(t, "127.62.0.0/24")
	proxy := &url.URL{Scheme: "http", Host: insert(t, addr, squidScript) + ":3128"}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	var body string
	require.Eventually(t, func() bool {
		resp, err := client.Get(target.URL)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		body = string(text)
		return err == nil && resp.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond)
	assert.Contains(t, body, "squid")

	req, err := http.NewRequest(http.MethodDelete, "http://"+addr+instances+"/vm", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool {
		_, err := client.Get(target.URL)
		return err != nil
	}, 20*time.Second, 50*time.Millisecond, "the squid goes with its VM")
}

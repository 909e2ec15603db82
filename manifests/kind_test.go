package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standIn is a stand-in for kind, kubectl and make: it records its calls.
const standIn = `#!/usr/bin/env bash
input=
[[ "$*" == *" -f -"* ]] && input=$(cat | grep -o "kind: [A-Za-z]*" | tr "\n" " ")
echo "$(basename "$0") $* $input" >>"$CALLS"
case "$(basename "$0") $*" in
"kind get clusters") echo other; [[ -z ${HAVE:-} ]] || echo egress-proxies ;;
"kind get kubeconfig"*) echo "kubeconfig of kind" ;;
"kubectl create namespace"*) echo "kind: Namespace" ;;
*" get secret discovery-token "*) echo CANARY-token ;;
*" run crawl-"*) cat >"$CALLS.stdin"; echo crawled ;;
*" get px,pxp,pods "*) [[ -z ${LEFT:-} ]] || echo "$LEFT" ;;
esac
`

// runKind runs the script with stand-ins, and returns its output and the calls.
func runKind(t *testing.T, programs []string, env ...string) (said string, calls []string, err error) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(standIn), 0o755))
	}
	// A checkout of its own, since it writes into dist.
	root := filepath.Join(dir, "checkout")
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("../scripts")))
	archive := filepath.Join(dir, "images.tar")
	require.NoError(t, os.WriteFile(archive, nil, 0o600))
	cmd := exec.CommandContext(t.Context(), "/bin/bash", filepath.Join(root, "scripts", "kind.sh"))
	cmd.Env = append([]string{"PATH=" + dir + ":/usr/bin:/bin", "CALLS=" + filepath.Join(dir, "calls"), "IMAGES=" + archive}, env...)
	out, err := cmd.CombinedOutput()
	written, _ := os.ReadFile(filepath.Join(dir, "calls"))
	assert.NotContains(t, string(out)+string(written), "CANARY", "the token goes by standard input")
	if token, readErr := os.ReadFile(filepath.Join(dir, "calls.stdin")); readErr == nil {
		assert.Equal(t, "CANARY-token\n", string(token))
	}
	for line := range strings.Lines(string(written)) {
		calls = append(calls, strings.TrimSpace(line))
	}
	return string(out), calls, err
}

// TestKind checks the calls of the script of `make kind`, in order, without Docker.
// TestServerAccepts applies its overlay, and TestCrawlOfKind in cmd/discovery runs its
// Pod's crawl.
func TestKind(t *testing.T) {
	all := []string{"kind", "kubectl", "make"}
	said, calls, err := runKind(t, all)
	require.NoError(t, err, said)
	assert.Contains(t, said, "all steps passed")
	assertInOrder(t, calls,
		"kind get clusters", "kind create cluster --name egress-proxies --wait 180s", "kind get kubeconfig --name egress-proxies", "kind load image-archive ",
		"make install OVERLAY=kind", "rollout status deployment/metacontroller", "rollout status deployment/webhooks deployment/prober statefulset/discovery",
		"kind: Proxy", "wait px/kind-demo --for=jsonpath={.status.port}=3128", "wait px/kind-demo --for=jsonpath={.status.phase}=Ready",
		"label --overwrite namespace kind-crawlers crawl.example.com/crawlers=true", " run crawl-", `patch px kind-demo --type=merge -p {"spec":{"port":3129}}`,
		"wait px/kind-demo --for=jsonpath={.status.port}=3129", " run crawl-", "delete px kind-demo", "get px,pxp,pods",
	)

	said, calls, err = runKind(t, all, "HAVE=1")
	require.NoError(t, err, said)
	for _, call := range calls {
		assert.NotContains(t, call, "kind create", "it is there")
	}
	said, _, err = runKind(t, all, "LEFT=pod/one")
	require.Error(t, err)
	assert.Contains(t, said, "these objects are left: pod/one")
	said, calls, err = runKind(t, all, "IMAGES=nowhere.tar")
	require.Error(t, err)
	assert.Contains(t, said, "nowhere.tar is not there: run  make images VERSION=dev")
	assert.Empty(t, calls)
	said, _, err = runKind(t, []string{"kubectl", "make"})
	require.Error(t, err)
	assert.Contains(t, said, "kind is not in PATH; without Docker, `make e2e` runs the same walk on a local node")
}

func assertInOrder(t *testing.T, calls []string, want ...string) {
	t.Helper()
	for _, call := range calls {
		if len(want) > 0 && strings.Contains(call, want[0]) {
			want = want[1:]
		}
	}
	assert.Empty(t, want, "not called, or not in this order: %v", calls)
}

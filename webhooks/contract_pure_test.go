package webhooks

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

func TestContractDecidesPurely(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		observe := func() *proxy.Observation {
			req, err := metacontroller.DecodeRequest(bytes.NewReader(c.body), podKind, probeKind)
			require.NoError(t, err)
			h := c.hooks(c.now)
			h.adapter.api = nil
			o, err := h.observe(t.Context(), req)
			require.NoError(t, err)
			return o
		}
		o := observe()
		first, err := proxy.Decide(o)
		require.NoError(t, err)
		_, err = fixtureHooks().answer(o, &first)
		require.NoError(t, err)
		require.Equal(t, observe(), o, "deciding changes nothing")
		again, err := proxy.Decide(o)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}, "sync", "finalize")
}

// A hook blocks one of Metacontroller's few workers. Its answer depends on the
// request and on the Adapter's replies, whose requests are bounded: the packages
// have no other client, and no clock but the injected one.
func TestContractCallsOnlyTheAdapter(t *testing.T) {
	files := forEachFile(t, "*.go", func(name string, file *ast.File, imports []string) {
		for _, path := range imports {
			require.NotContains(t, []string{"net", "net/rpc", "os/exec", "database/sql", "math/rand", "math/rand/v2", "crypto/rand"}, path, name)
			require.False(t, strings.HasPrefix(path, "k8s.io/client-go"), "%s imports %s", name, path)
		}
		requireNoCalls(t, name, file)
	})
	require.Greater(t, files, 5)

	const api = "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/"
	files = forEachFile(t, "proxy/*.go", func(name string, file *ast.File, imports []string) {
		for _, path := range imports {
			pure := slices.Contains([]string{"cmp", "errors", "fmt", "net/netip", "regexp", "slices", "strings", "time", "k8s.io/api/core/v1"}, path) ||
				strings.HasPrefix(path, "k8s.io/apimachinery/") || strings.HasPrefix(path, api)
			require.True(t, pure, "%s imports %s", name, path)
		}
		requireNoCalls(t, name, file)
	})
	require.Greater(t, files, 5)
}

// forEachFile calls check with each file that is no test, and returns their number.
func forEachFile(t *testing.T, pattern string, check func(name string, file *ast.File, imports []string)) (files int) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		var imports []string
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports = append(imports, path)
		}
		check(name, file, imports)
	}
	return files
}

func requireNoCalls(t *testing.T, name string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			require.NotContains(t, forbidden(), selector(s), name)
		}
		return true
	})
}

func forbidden() []string {
	calls := []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After"}
	for _, name := range []string{"Get", "Post", "PostForm", "Head", "Client", "DefaultClient", "NewRequest", "NewRequestWithContext", "Transport", "DefaultTransport"} {
		calls = append(calls, "http."+name)
	}
	return calls
}

func selector(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

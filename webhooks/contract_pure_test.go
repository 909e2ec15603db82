package webhooks

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func TestContractDecidesPurely(t *testing.T) {
	providers := Providers{"pods": testProvider()}
	forEachCase(t, func(t *testing.T, c contractCase) {
		observe := func() *Observation {
			req, err := metacontroller.DecodeRequest(bytes.NewReader(c.body), podKind, probeKind)
			require.NoError(t, err)
			o, err := observe(req, providers, true, c.now)
			require.NoError(t, err)
			o.Timing, o.MayReplace = testTiming(), !c.budgetUsed
			return o
		}
		o := observe()
		first, err := decide(*o)
		require.NoError(t, err)
		_, err = answer(o, &first)
		require.NoError(t, err)
		require.Equal(t, observe(), o, "deciding changes nothing")
		again, err := decide(*o)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}, "sync", "finalize")
}

// A hook holds one of Metacontroller's few workers, and its answer may rest on
// nothing but the request and what the Adapter says, whose calls are bounded: the
// package has no way to call anybody else, and no clock but the one it is given.
func TestContractCallsNobody(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			require.NotContains(t, []string{"net", "net/rpc", "os/exec", "database/sql", "math/rand", "math/rand/v2", "crypto/rand"}, path, name)
			require.False(t, strings.HasPrefix(path, "k8s.io/client-go"), "%s imports %s", name, path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				require.NotContains(t, forbidden(), selector(s), name)
			}
			return true
		})
	}
	require.Greater(t, files, 15)
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

package probe

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reasons are the values of all constants of type Reason.
func reasons(t testing.TB) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	require.NoError(t, err)
	var out []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			out = append(out, Reason(text))
		}
		return true
	})
	require.Greater(t, len(out), 30)
	return out
}

// Each reason is documented, and is valid in a condition.
func TestEveryReasonIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/health.md")
	require.NoError(t, err)
	for _, r := range reasons(t) {
		assert.Contains(t, string(doc), "| `"+string(r)+"` |", "docs/health.md")
		assert.Regexp(t, `^[A-Z][A-Za-z]+$`, r)
	}
}

// Failures that the target cannot cause are never suppressed because of it.
func TestFarReasons(t *testing.T) {
	far := map[Reason]bool{}
	for _, r := range reasons(t) {
		far[r] = r.Far()
	}
	for _, near := range []Reason{
		ReasonDialFailed, ReasonDialTimeout, ReasonProxyNotResolved, ReasonProxyTLSFailed, ReasonProxyTLSTimeout, ReasonProxyTLSUntrusted,
		ReasonProxyAuthRefused, ReasonConnectRefused, ReasonCredentialsRefused, ReasonOpenProxy, ReasonHeaderLeak, ReasonProbeSucceeded,
	} {
		assert.False(t, far[near], near)
	}
	for _, r := range []Reason{ReasonUpstreamFailed, ReasonConnectTimeout, ReasonTLSTimeout, ReasonUnexpectedStatus, ReasonResponseTimeout} {
		assert.True(t, far[r], r)
	}
}

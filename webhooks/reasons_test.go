package webhooks

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReasonsAreDocumented looks for each reason that `kubectl get px` may show,
// as the sources name it, in the guide that explains them.
func TestReasonsAreDocumented(t *testing.T) {
	guide, err := os.ReadFile("../docs/operate.md")
	require.NoError(t, err)
	found := 0
	for _, file := range []string{"../api/v1alpha1/conditions.go", "proxy/status.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:const )?Reason\w+\s*= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			assert.Contains(t, string(guide), "`"+m[1]+"`")
		}
	}
	assert.Greater(t, found, 15, "the sources have changed their shape")
}

package gcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const canaryData = "#cloud-config\nwrite_files:\n- content: |\n    user:CANARY-0123456789abcdef\n"

// Row E4: Compute's messages echo the refused value, which for user data may be a
// password.
func TestE4RedactHidesUserData(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"whole value":    {"Invalid value for field 'x': '" + canaryData + "'. Too large.", "CANARY"},
		"part of a line": {"near CANARY-0123456789a", "CANARY"},
		"escaped":        {strings.ReplaceAll(canaryData, "\n", `\n`), "CANARY"},
	}
	for name, tt := range tests {
		clean := redact(tt.text, canaryData)
		assert.NotContains(t, clean, tt.want, name)
		assert.Contains(t, clean, "[redacted]", name)
	}
	assert.Equal(t, "Invalid value for field 'x': '[redacted]'. Too large.",
		redact("Invalid value for field 'x': 'CANARY-0123456789abcdef'. Too large.", "CANARY-0123456789abcdef"))
}

func TestRedactKeepsOtherText(t *testing.T) {
	text := "The resource 'projects/p/zones/z/instances/n' already exists"
	assert.Equal(t, text, redact(text, canaryData))
	assert.Equal(t, text, redact(text, ""))
	err := errors.New(text)
	assert.Same(t, err, redacted(err, canaryData), "the cause stays reachable")
}

func FuzzRedact(f *testing.F) {
	f.Add("before ", "line one of the secret\nshort\n", " after")
	f.Add("", "0123456789ab", "")
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		for line := range strings.Lines(secret) {
			line = strings.TrimSpace(line)
			if len(line) < window || strings.Contains("[redacted]", line) {
				continue
			}
			require.NotContains(t, redact(before+line+after, secret), line)
		}
	})
}

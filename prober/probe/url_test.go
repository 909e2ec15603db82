package probe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]probeURL{
		"https://example.com/generate_204": {true, "example.com", "example.com", "example.com:443", "/generate_204"},
		"https://example.com":              {true, "example.com", "example.com", "example.com:443", "/"},
		"https://example.com?a=b":          {true, "example.com", "example.com", "example.com:443", "/?a=b"},
		"https://example.com:8443/x#frag":  {true, "example.com", "example.com:8443", "example.com:8443", "/x"},
		"https://[2001:db8::1]/":           {true, "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "/"},
		"http://example.com":               {false, "example.com", "example.com", "example.com:80", "/"},
		"http://example.com:81/x?y=z":      {false, "example.com", "example.com:81", "example.com:81", "/x?y=z"},
		"http://example.com/ä?q=a b%20é":   {false, "example.com", "example.com", "example.com:80", "/%C3%A4?q=a%20b%20%C3%A9"},
	} {
		got, err := parseURL(raw)
		require.NoError(t, err, raw)
		assert.Equal(t, want, got, raw)
	}
}

func TestParseURLErrors(t *testing.T) {
	for raw, want := range map[string]string{
		"":                              "must start with",
		"ftp://example.com/":            "must start with",
		"https://":                      "no host",
		"https://:443/":                 "no host",
		"https://[::1/":                 "not a URL",
		"https://example.com:0/":        "port",
		"https://example.com:70000/":    "port",
		"https://user:hush@example.com": "user",
		"https://exämple.com/":          "punycode",
		"https://example.com/\r\nX: y":  "not a URL",
		"https://exam ple.com/":         "not a URL",
	} {
		_, err := parseURL(raw)
		require.ErrorContains(t, err, want, raw)
		assert.NotContains(t, err.Error(), "hush")
	}
}

func TestInvalidProbeURLIsAFailure(t *testing.T) {
	req := request(nothing(), patient)
	req.HealthCheck.ProbeURL = "https://exämple.com/"
	r := New(nil).Probe(t.Context(), req)
	assert.Equal(t, Failure, r.Outcome)
	assert.Equal(t, ReasonProbeURLInvalid, r.Reason)
	assert.Contains(t, r.Message, "setup: the host of probeURL")
}

// What reaches the wire is one request line and one Host line, whatever the URL.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"https://example.com/", "http://a:1/b?c#d", "https://[::1]:2", "https://a\r\nb/", "http://%0d%0a/", "https://a/%0d%0a?\n", "http://a? ", "http://a?\u00e9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		parsed, err := parseURL(raw)
		if err != nil {
			return
		}
		a := attempt{target: parsed}
		for what, lines := range map[string]struct {
			got  string
			want int
		}{
			"CONNECT": {string(a.connectRequest()), 4},
			"GET":     {string(a.request()), 6},
		} {
			if strings.Count(lines.got, "\n") != lines.want || strings.Count(lines.got, "\r\n") != lines.want {
				t.Fatalf("%s of %q has other lines than its own: %q", what, raw, lines.got)
			}
			if first, _, _ := strings.Cut(lines.got, "\r\n"); strings.Count(first, " ") != 2 {
				t.Fatalf("%s of %q has more than three words: %q", what, raw, first)
			}
		}
	})
}

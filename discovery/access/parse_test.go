package access

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	canary  = "CANARY-0123456789abcdef"
	canary2 = "CANARY-fedcba9876543210"
)

func TestParse(t *testing.T) {
	tokens, err := Parse([]byte(`
tokens:
- name: crawler-eu
  token: ` + canary + `
  previousToken: ` + canary2 + `
  scopes: [lease]
  requestsPerSecond: 12.5
- {name: board, token: CANARY-of-the-board-01, scopes: [read]}
`))
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	assert.Equal(t, []string{canary, canary2}, tokens[0].values())
	assert.InDelta(t, 12.5, *tokens[0].RequestsPerSecond, 0)
	assert.Nil(t, tokens[1].RequestsPerSecond)

	_, err = Parse([]byte(`{"tokens":[{"name":"a","token":"` + canary + `","scopes":["admin","read"]}]}`))
	assert.NoError(t, err, "JSON is YAML")
}

func TestParseErrors(t *testing.T) {
	one := func(fields string) string {
		return "tokens: [{name: a, token: " + canary + ", scopes: [read], " + fields + "}]"
	}
	many := "tokens:\n"
	for i := range maxTokens + 1 {
		many += fmt.Sprintf("- {name: a%d, token: %s-%d, scopes: [read]}\n", i, canary, i)
	}
	for text, want := range map[string]string{
		"":                                  "it has no tokens; want tokens: [{name: ..., token: ..., scopes: [...]}]",
		"tokens: []":                        "it has no tokens",
		canary:                              "a value is of the wrong type",
		canary + ": x":                      "it has an unknown field; each token has name, token, previousToken, scopes and requestsPerSecond",
		"tokens: {" + canary:                "it is not valid YAML",
		"tokens: " + canary:                 "a value is of the wrong type",
		"tokens: []\ntokens: []":            "it has a duplicate field, line 2",
		one(canary + ": 1"):                 "an unknown field",
		one("requestsPerSecond: " + canary): "a value is of the wrong type",
		one("requestsPerSecond: -1"):        `token "a": requestsPerSecond: want 0, for any number, to 1e+06`,
		one("requestsPerSecond: .nan"):      "",
		one("previousToken: short"):         `token "a": previousToken: it has 5 bytes and can be guessed; want at least 16`,
		one("previousToken: " + canary):     `token "a": its value is a duplicate`,
		"tokens: [{}]":                      "token 1: name: want 1 to 63 lower-case letters",
		"tokens: [{name: A b, token: " + canary + ", scopes: [read]}]":                                                  "token 1: name: want",
		"tokens: [{name: a, token: short, scopes: [read]}]":                                                             `token "a": token: it has 5 bytes and can be guessed; want at least 16, such as from: openssl rand -hex 32`,
		"tokens: [{name: a, token: '" + canary + " x', scopes: [read]}]":                                                `token "a": token: it has a space or a character that HTTP headers cannot carry`,
		"tokens: [{name: a, token: " + strings.Repeat("x", 513) + ", scopes: []}]":                                      "it has 513 bytes; at most 512 are allowed",
		"tokens: [{name: a, token: " + canary + "}]":                                                                    `token "a": it has no scopes; want some of ["read" "lease" "admin"]`,
		"tokens: [{name: a, token: " + canary + ", scopes: [" + canary2 + "]}]":                                         `token "a": unknown scope "CANARY-fed..."; known are`,
		"tokens: [{name: a, token: " + canary + ", scopes: [read]}, {name: a, token: " + canary2 + ", scopes: [read]}]": `token "a": its name is a duplicate`,
		many:                                     "it has 257 tokens; at most 256 are allowed",
		strings.Repeat("#", maxFile) + "\n" + "": "it has 1048577 bytes; at most 1048576 are allowed",
	} {
		_, err := Parse([]byte(text))
		require.Error(t, err, clip(text))
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), canary)
		assert.NotContains(t, err.Error(), canary2)
	}
}

func TestParseTellsEverythingAtOnce(t *testing.T) {
	_, err := Parse([]byte("tokens: [{name: a, token: short, scopes: [all]}, {name: b, token: " + canary + "}]"))
	assert.ErrorContains(t, err, `token "a": token: it has 5 bytes`)
	assert.ErrorContains(t, err, `token "a": unknown scope "all"`)
	assert.ErrorContains(t, err, `token "b": it has no scopes`)
}

func TestScopesIncludeThoseBefore(t *testing.T) {
	assert.True(t, ScopeAdmin.Includes(ScopeRead))
	assert.True(t, ScopeAdmin.Includes(ScopeLease))
	assert.True(t, ScopeLease.Includes(ScopeRead))
	assert.True(t, ScopeRead.Includes(ScopeRead))
	assert.False(t, ScopeRead.Includes(ScopeLease))
	assert.False(t, ScopeLease.Includes(ScopeAdmin))
	assert.False(t, Scope("").Includes(""))
	assert.False(t, Scope("root").Includes(ScopeRead))
}

// FuzzParse: no file causes a panic, valid tokens are safe to use, and errors contain
// no token.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "tokens: []", "tokens: [{name: a, token: " + canary + ", scopes: [read]}]", canary, "{", "a: &a [*a]", "tokens:\n- <<: *x",
		`{"tokens":[{"name":"a","token":"` + canary + `","scopes":["lease"],"requestsPerSecond":1e400}]}`, "tokens: [{scopes: [{}]}]", "\xff\xfe", "? ? ?",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, err := Parse(text)
		if err != nil {
			require.NotContains(t, err.Error(), canary)
			return
		}
		require.NotEmpty(t, tokens)
		ring := newKeyring(tokens, 10, keyring{})
		for _, token := range tokens {
			require.NoError(t, CheckValue(token.Value))
			require.Equal(t, token.Name, ring.identify("Bearer "+token.Value).Name)
			require.True(t, ring.identify("Bearer "+token.Value).Scope.Known())
		}
		require.Nil(t, ring.identify(""))
	})
}

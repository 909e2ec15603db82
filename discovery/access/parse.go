package access

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Bounds of a tokens file.
const (
	// MinTokenLength in bytes: 16 random letters and digits have about 95 bits.
	MinTokenLength = 16
	maxTokenLength = 512
	maxTokens      = 256
	maxFile        = 1 << 20
	maxRate        = 1e6
)

// Token is one entry of a tokens file.
type Token struct {
	// Name is the token's in logs and metrics, which never contain its value.
	Name string `json:"name"`
	// Value is the bearer token.
	Value string `json:"token"`
	// Previous is accepted, too, so that crawlers can rotate to a new Value one by
	// one; "" for none.
	Previous string `json:"previousToken,omitempty"`
	// Scopes of the token, at least one.
	Scopes []Scope `json:"scopes"`
	// RequestsPerSecond is the rate limit; nil for the default, 0 for none.
	RequestsPerSecond *float64 `json:"requestsPerSecond,omitempty"`
}

type file struct {
	Tokens []Token `json:"tokens"`
}

// validName matches names that are safe in logs and labels.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9._]{0,61}[a-z0-9])?$`)

// Parse reads a tokens file: YAML or JSON, an object with the member tokens, a list
// of Token. It returns all errors at once. They identify tokens by name or position,
// and never contain a value or text that may be one.
func Parse(text []byte) ([]Token, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are allowed", len(text), maxFile)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, redact(err)
	}
	switch {
	case len(f.Tokens) == 0:
		return nil, errors.New("it has no tokens; want tokens: [{name: ..., token: ..., scopes: [...]}]")
	case len(f.Tokens) > maxTokens:
		return nil, fmt.Errorf("it has %d tokens; at most %d are allowed", len(f.Tokens), maxTokens)
	}
	return f.Tokens, check(f.Tokens)
}

// line matches the position in an error of the YAML parser.
var line = regexp.MustCompile(`line \d+`)

// redact replaces errors of the YAML parser, which quote the file.
func redact(err error) error {
	text := err.Error()
	where := ""
	if at := line.FindString(text); at != "" {
		where = ", " + at
	}
	const known = "each token has name, token, previousToken, scopes and requestsPerSecond"
	switch {
	case strings.Contains(text, "unknown field"):
		return errors.New("it has an unknown field; " + known)
	case strings.Contains(text, "already set") || strings.Contains(text, "duplicate"):
		return errors.New("it has a duplicate field" + where)
	case strings.Contains(text, "cannot unmarshal"):
		return errors.New("a value is of the wrong type; " + known)
	}
	return errors.New("it is not valid YAML" + where)
}

func check(tokens []Token) error {
	var errs []error
	names, values := map[string]bool{}, map[string]bool{}
	for i, t := range tokens {
		who := fmt.Sprintf("token %d", i+1)
		if validName.MatchString(t.Name) {
			who = fmt.Sprintf("token %q", t.Name)
		}
		for _, err := range t.problems() {
			errs = append(errs, fmt.Errorf("%s: %w", who, err))
		}
		if t.Name != "" && names[t.Name] {
			errs = append(errs, fmt.Errorf("%s: its name is a duplicate", who))
		}
		names[t.Name] = true
		for _, v := range t.values() {
			if values[v] {
				errs = append(errs, fmt.Errorf("%s: its value is a duplicate; every token needs its own", who))
			}
			values[v] = true
		}
	}
	return errors.Join(errs...)
}

// problems lists the errors of one token by itself.
func (t Token) problems() (errs []error) {
	if !validName.MatchString(t.Name) {
		errs = append(errs, errors.New("name: want 1 to 63 lower-case letters, digits, '-', '.' and '_', with a letter or digit at both ends"))
	}
	if err := CheckValue(t.Value); err != nil {
		errs = append(errs, fmt.Errorf("token: %w", err))
	}
	if t.Previous != "" {
		if err := CheckValue(t.Previous); err != nil {
			errs = append(errs, fmt.Errorf("previousToken: %w", err))
		}
	}
	if _, err := highest(t.Scopes); err != nil {
		errs = append(errs, err)
	}
	if r := t.RequestsPerSecond; r != nil && !(*r >= 0 && *r <= maxRate) {
		errs = append(errs, fmt.Errorf("requestsPerSecond: want 0, for any number, to %g", float64(maxRate)))
	}
	return errs
}

func (t Token) values() []string {
	if t.Previous == "" {
		return []string{t.Value}
	}
	return []string{t.Value, t.Previous}
}

// CheckValue refuses a token that is short enough to be guessed, or that is invalid in
// a header. Errors do not contain it.
func CheckValue(token string) error {
	switch n := len(token); {
	case n < MinTokenLength:
		return fmt.Errorf("it has %d bytes and can be guessed; want at least %d, such as from: openssl rand -hex 32", n, MinTokenLength)
	case n > maxTokenLength:
		return fmt.Errorf("it has %d bytes; at most %d are allowed", n, maxTokenLength)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("it has a space or a character that HTTP headers cannot carry; use visible ASCII")
	}
	return nil
}

// clip bounds how much of a file an error repeats.
func clip(s string) string {
	const most = 10 // shorter than any token
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "?") + "..."
}

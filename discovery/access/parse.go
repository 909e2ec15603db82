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
	// MinTokenLength is the least number of bytes of a token: 16 random
	// letters and digits hold about 95 bits.
	MinTokenLength = 16
	maxTokenLength = 512
	maxTokens      = 256
	maxFile        = 1 << 20
	maxRate        = 1e6
)

// Token is one entry of a tokens file.
type Token struct {
	// Name stands for the token in logs and metrics, where its value never is.
	Name string `json:"name"`
	// Value is what requests bear.
	Value string `json:"token"`
	// Previous is accepted as well, so that crawlers can change over one by
	// one after Value was changed; "" for none.
	Previous string `json:"previousToken,omitempty"`
	// Scopes that it has, at least one.
	Scopes []Scope `json:"scopes"`
	// RequestsPerSecond that are let through on average; nil for the default,
	// 0 for any number.
	RequestsPerSecond *float64 `json:"requestsPerSecond,omitempty"`
}

type file struct {
	Tokens []Token `json:"tokens"`
}

// validName is a name that is safe to log and to be a label.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9._]{0,61}[a-z0-9])?$`)

// Parse reads a tokens file: YAML or JSON, an object with the member tokens, a
// list of Token. It returns everything that is wrong at once. Errors name
// tokens by their names or places and never hold any of their values, nor any
// text that may have been meant as one.
func Parse(text []byte) ([]Token, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(text), maxFile)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, tellNothing(err)
	}
	switch {
	case len(f.Tokens) == 0:
		return nil, errors.New("it has no tokens; want tokens: [{name: ..., token: ..., scopes: [...]}]")
	case len(f.Tokens) > maxTokens:
		return nil, fmt.Errorf("it has %d tokens; at most %d are allowed", len(f.Tokens), maxTokens)
	}
	return f.Tokens, check(f.Tokens)
}

// line finds where a parser of YAML stopped.
var line = regexp.MustCompile(`line \d+`)

// tellNothing keeps a parser's words, which quote the file, from being printed.
func tellNothing(err error) error {
	text := err.Error()
	where := ""
	if at := line.FindString(text); at != "" {
		where = ", " + at
	}
	const known = "each token has name, token, previousToken, scopes and requestsPerSecond"
	switch {
	case strings.Contains(text, "unknown field"):
		return errors.New("it has a field that is not known; " + known)
	case strings.Contains(text, "already set") || strings.Contains(text, "duplicate"):
		return errors.New("a field comes twice" + where)
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
			errs = append(errs, fmt.Errorf("%s: its name comes twice", who))
		}
		names[t.Name] = true
		for _, v := range t.values() {
			if values[v] {
				errs = append(errs, fmt.Errorf("%s: its value comes twice; every token needs one of its own", who))
			}
			values[v] = true
		}
	}
	return errors.Join(errs...)
}

// problems lists what is wrong with one token by itself.
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

// CheckValue refuses a token that is easily guessed for being short, or that
// no header can carry. Errors do not hold it.
func CheckValue(token string) error {
	switch n := len(token); {
	case n < MinTokenLength:
		return fmt.Errorf("it has %d bytes, which can be guessed; want at least %d, such as from: openssl rand -hex 32", n, MinTokenLength)
	case n > maxTokenLength:
		return fmt.Errorf("it has %d bytes; at most %d are allowed", n, maxTokenLength)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("it has a space or a character that HTTP headers cannot carry; use visible ASCII")
	}
	return nil
}

// clip keeps what a file holds from filling a message.
func clip(s string) string {
	const most = 10 // no token is as short
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "?") + "..."
}

package gcp

import (
	"errors"
	"strings"
)

// window is how many characters in a row of a secret count as a leak. Shorter ones
// are words that any text may share with user data.
const window = 12

// redacted returns err, or an error with the redacted text when it contains part of
// the secret. That error has no cause, since the cause contains the secret.
func redacted(err error, secret string) error {
	text := err.Error()
	if clean := redact(text, secret); clean != text {
		return errors.New(clean)
	}
	return err
}

// redact replaces every part of text that has window or more characters in a row
// in common with one line of secret.
func redact(text, secret string) string {
	windows := map[string]bool{}
	for line := range strings.Lines(secret) {
		line = strings.TrimSpace(line)
		for i := 0; i+window <= len(line); i++ {
			windows[line[i:i+window]] = true
		}
		if len(line) < window && len(line) >= window/2 {
			text = strings.ReplaceAll(text, line, "[redacted]")
		}
	}
	if len(windows) == 0 {
		return text
	}
	var out strings.Builder
	hidden := 0 // text before this offset is secret
	for i := range len(text) {
		if i+window <= len(text) && windows[text[i:i+window]] {
			if i >= hidden {
				out.WriteString("[redacted]")
			}
			hidden = i + window
		}
		if i >= hidden {
			out.WriteByte(text[i])
		}
	}
	return out.String()
}

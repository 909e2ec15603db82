package gcp

import "strings"

// window is how many characters in a row of a secret make a leak. Shorter ones
// are words that any text may share with user data.
const window = 12

// redacted returns err, or when its text shares more than a few characters with
// secret, an error with those blotted out. Compute's messages repeat the value
// that they refuse.
func redacted(err error, secret string) error {
	text := err.Error()
	clean := redact(text, secret)
	if clean == text {
		return err
	}
	return redactedError(clean)
}

// redactedError has no cause, since that would still hold the secret.
type redactedError string

func (e redactedError) Error() string { return string(e) }

// redact replaces every stretch of text that holds window or more characters in
// a row of one line of secret.
func redact(text, secret string) string {
	windows := map[string]bool{}
	for line := range strings.Lines(secret) {
		line = strings.TrimSpace(line)
		for i := 0; i+window <= len(line); i++ {
			windows[line[i:i+window]] = true
		}
		if len(line) > 0 && len(line) < window && len(line) >= window/2 {
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

package probe

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
)

// sentHeaders are those of attempt.request that reach the target. Whatever else arrives
// there was added on the way.
var sentHeaders = []string{"User-Agent", "Accept", "Connection"}

// nonceBytes is the length of a nonce that no proxy can guess.
const nonceBytes = 12

func newNonce() string {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}

// readProof reads the echo endpoint's response: it must carry this request's nonce, and
// contains the source address and the names of added headers.
func (a *attempt) readProof() error {
	body, err := io.ReadAll(io.LimitReader(a.response.Body, echo.MaxAnswer))
	if err != nil {
		return err
	}
	a.seen, err = echo.Read(body, a.nonce, sentHeaders...)
	if err != nil {
		return stageError{ReasonWrongContent, err.Error() + "; the proxy answers in its place, or exitProof is set for another kind of URL"}
	}
	a.hideSecrets(a.seen.Leaks)
	a.hideSecrets(a.seen.Added)
	switch {
	case a.target.tunnel || len(a.seen.Leaks) == 0 || a.req.HealthCheck.ExitProof.OnHeaderLeak != v1alpha1.FailOnHeaderLeak:
		return nil
	case a.direct: // so that no proxy is blamed for it
		return stageError{ReasonHeaderLeak, "something in front of the echo endpoint adds " + listed(a.seen.Leaks) + " to requests; take it away, or set onHeaderLeak: Report"}
	}
	return stageError{ReasonHeaderLeak, "the proxy adds " + listed(a.seen.Leaks) + " to requests"}
}

// hideSecrets replaces header names that contain the credentials, or a word of the path
// or query of the probe URL: a hostile proxy chooses the names, and messages are public.
// Short words of the URL are no secrets: ip is one of /ip, and of X-Real-Ip.
func (a *attempt) hideSecrets(names []string) {
	words := strings.FieldsFunc(a.target.path, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	secrets := slices.DeleteFunc(words, func(word string) bool { return len(word) < longSecret })
	if c := a.req.Credentials; c != nil {
		user := c.Userinfo()
		password, _ := user.Password()
		secrets = append(secrets, user.Username(), password, strings.TrimPrefix(a.auth, "Basic "))
	}
	for i, name := range names {
		if slices.ContainsFunc(secrets, func(s string) bool { return repeats(name, s) }) {
			names[i] = echo.HiddenName
		}
	}
}

// longSecret is the length from which a secret counts within a longer word. Almost every
// name contains some shorter one.
const longSecret = 4

// repeats reports whether a header name contains a secret. A short one counts only
// between hyphens.
func repeats(name, secret string) bool {
	name, secret = strings.ToLower(name), strings.ToLower(secret)
	if len(secret) >= longSecret {
		return strings.Contains(name, secret)
	}
	return secret != "" && strings.Contains("-"+name+"-", "-"+secret+"-")
}

// maxListed bounds the header names in a message, in bytes.
const maxListed = 110

func listed(names []string) string {
	text := ""
	for i, name := range names {
		if i > 0 && len(text)+len(name) > maxListed {
			return fmt.Sprintf("%s and %d more", text, len(names)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}

// additions describes the headers that arrived at the echo endpoint and were not sent.
// In a tunnel no proxy can have added them.
func (a *attempt) additions() string {
	if len(a.seen.Leaks) > 0 && !a.forwarded() {
		return "; something in front of the echo endpoint adds " + listed(a.seen.Leaks) + ", and may hide the exit address"
	}
	var text string
	if len(a.seen.Leaks) > 0 {
		text = ", which adds " + listed(a.seen.Leaks)
	}
	if len(a.seen.Added) > 0 && a.forwarded() {
		text += ", with added headers without an address: " + listed(a.seen.Added)
	}
	return text
}

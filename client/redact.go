package client

import (
	"fmt"
	"io"
)

// String names the lease and its proxy. Neither it nor Format and MarshalText, which logs
// and JSON use, contain the password; ProxyURL and RawProxyURL do.
func (l *Lease) String() string {
	return fmt.Sprintf("lease %s of proxy %s/%s", l.ID, l.Proxy.Namespace, l.Proxy.Name)
}

// Format implements fmt.Formatter for all verbs.
func (l *Lease) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, l.String()) }

// MarshalText implements encoding.TextMarshaler.
func (l *Lease) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Format implements fmt.Formatter for all verbs: without the token and the URL's password.
func (c *Client) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, "client of "+c.base.Redacted())
}

// Format implements fmt.Formatter for all verbs: it omits the values, since the token and
// the URL may be secret.
func (Config) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "client.Config{...}") }

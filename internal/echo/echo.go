// Package echo is the endpoint that proves a proxy works: it returns what arrived at the
// target. The prober requests it through proxies; Handler serves it.
//
// A request is GET with a nonce in the query. The response is JSON with the nonce, which
// a page of the proxy or a stale response of a cache does not have, and with the address
// that the request came from: the proxy's exit.
package echo

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

const (
	// NonceParam is the parameter of the query that holds the nonce.
	NonceParam = "nonce"
	// MaxNonce is how many characters a nonce may have.
	MaxNonce = 64
	// MaxAnswer is how many bytes an answer has at most.
	MaxAnswer = 16 << 10
	// maxValue is how much of a header's value is repeated.
	maxValue = 128
	// hidden stands for a value that must not be repeated.
	hidden = "(not repeated)"
)

// proxyAuthorization must never reach a target: it is the proxy's password.
const proxyAuthorization = "Proxy-Authorization"

// ForwardingHeaders are the headers that reveal a proxy or its clients to a target, in
// canonical form.
func ForwardingHeaders() []string {
	return []string{
		"Client-Ip", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "True-Client-Ip", "Via",
		"X-Client-Ip", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Proxy-Id", "X-Real-Ip",
	}
}

// Answer is the response of the endpoint.
type Answer struct {
	// Nonce of the request.
	Nonce string `json:"nonce"`
	// Peer is the IP address that the connection came from.
	Peer string `json:"peer"`
	// Forwarded is the ForwardingHeaders of the request, truncated. The value of
	// Proxy-Authorization is not repeated.
	Forwarded map[string]string `json:"forwarded"`
}

// Handler serves GET on every path. A ServeMux would redirect, and so repeat, paths that
// are not clean.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	nonce := r.URL.Query().Get(NonceParam)
	if len(nonce) > MaxNonce {
		http.Error(w, fmt.Sprintf("%s has more than %d characters", NonceParam, MaxNonce), http.StatusBadRequest)
		return
	}
	body, err := json.Marshal(Answer{Nonce: nonce, Peer: peer(r), Forwarded: forwarded(r.Header)})
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(body, '\n'))
}

// peer is the client's address: IPv4 in its own form, also when it came in over
// an IPv6 socket.
func peer(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return clip(r.RemoteAddr) // not a TCP socket
	}
	return from.Addr().Unmap().WithZone("").String()
}

func forwarded(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range ForwardingHeaders() {
		values := h.Values(name)
		switch {
		case len(values) == 0:
		case name == proxyAuthorization:
			out[name] = hidden
		default:
			out[name] = clip(strings.Join(values, ", "))
		}
	}
	return out
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "")
	if len(s) > maxValue {
		return strings.ToValidUTF8(s[:maxValue], "")
	}
	return s
}

// WithNonce adds the nonce to a URL.
func WithNonce(rawURL, nonce string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", errors.New("not a URL") // url's own error repeats it
	}
	query := u.Query()
	query.Set(NonceParam, nonce)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Seen is what an Answer proves. It has no free text of the other side.
type Seen struct {
	// Exit is the address that the target saw.
	Exit netip.Addr
	// Leaks are the ForwardingHeaders that the target received, sorted.
	Leaks []string
}

// ErrNotOurs means that the body is not the response to this nonce.
var ErrNotOurs = errors.New("the body is not the echo endpoint's answer to this probe")

// Read parses the response to a request with this nonce. Its errors unwrap to
// ErrNotOurs.
func Read(body []byte, nonce string) (Seen, error) {
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Seen{}, fmt.Errorf("%w: it is no JSON of that form", ErrNotOurs)
	}
	if a.Nonce != nonce {
		return Seen{}, fmt.Errorf("%w: its nonce is another", ErrNotOurs)
	}
	exit, err := netip.ParseAddr(a.Peer)
	if err != nil {
		return Seen{}, fmt.Errorf("%w: its peer is no address", ErrNotOurs)
	}
	seen := Seen{Exit: exit.Unmap().WithZone("")}
	for _, name := range ForwardingHeaders() {
		if _, there := a.Forwarded[name]; there {
			seen.Leaks = append(seen.Leaks, name)
		}
	}
	slices.Sort(seen.Leaks)
	return seen, nil
}

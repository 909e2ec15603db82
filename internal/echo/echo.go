// Package echo is the echo endpoint: a probe target that proves which exit address and
// which headers a proxy uses. The prober requests it through proxies, Handler serves it.
//
// A request is GET with a nonce in the query. The response is JSON with the nonce, so
// that a page of the proxy's own or a cached response does not count, and with the
// source address of the request: the proxy's exit.
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
	// NonceParam is the query parameter with the nonce.
	NonceParam = "nonce"
	// MaxNonce is the maximum length of a nonce in bytes.
	MaxNonce = 64
	// MaxAnswer is the maximum length of a response in bytes.
	MaxAnswer = 16 << 10
	// maxValue is the length in bytes to which header values are cut.
	maxValue = 128
	// hidden replaces a value that must not be repeated.
	hidden = "(not repeated)"
)

// proxyAuthorization carries the proxy's password and must never reach a target.
const proxyAuthorization = "Proxy-Authorization"

// ForwardingHeaders are the headers by which proxies identify themselves and their
// clients, in canonical form.
var ForwardingHeaders = []string{
	"Client-Ip", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "True-Client-Ip", "Via",
	"X-Client-Ip", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Proxy-Id", "X-Real-Ip",
}

// Answer is the body of a response.
type Answer struct {
	// Nonce of the request.
	Nonce string `json:"nonce"`
	// Peer is the source IP address of the connection.
	Peer string `json:"peer"`
	// Forwarded contains the ForwardingHeaders of the request, cut to a bound. The value
	// of Proxy-Authorization is not repeated.
	Forwarded map[string]string `json:"forwarded"`
}

// Handler answers GET on every path. It uses no ServeMux, which would redirect unclean
// paths and repeat them in the response.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		return
	}
	nonce := r.URL.Query().Get(NonceParam)
	if len(nonce) > MaxNonce {
		http.Error(w, fmt.Sprintf("%s has more than %d characters", NonceParam, MaxNonce), http.StatusBadRequest)
		return
	}
	body, err := json.Marshal(Answer{Nonce: nonce, Peer: peer(r), Forwarded: forwarded(r.Header)})
	if err != nil {
		http.Error(w, "the response cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(body, '\n'))
}

// peer returns the client's address. An IPv4 address on an IPv6 socket is unmapped.
func peer(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return clip(r.RemoteAddr) // not a TCP socket
	}
	return from.Addr().Unmap().WithZone("").String()
}

func forwarded(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range ForwardingHeaders {
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

// WithNonce returns the URL that requests a response with this nonce.
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

// Seen is what an Answer proves. It contains no text from the peer.
type Seen struct {
	// Exit is the address that the target saw.
	Exit netip.Addr
	// Leaks are the ForwardingHeaders that the target saw, sorted.
	Leaks []string
}

// ErrNotOurs means that the body is not the response to the request with this nonce.
var ErrNotOurs = errors.New("the body is not the echo endpoint's response to this probe")

// Read parses the body of the response to the request with this nonce. Its errors wrap
// ErrNotOurs.
func Read(body []byte, nonce string) (Seen, error) {
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Seen{}, fmt.Errorf("%w: it is not JSON of that form", ErrNotOurs)
	}
	if a.Nonce != nonce {
		return Seen{}, fmt.Errorf("%w: its nonce differs", ErrNotOurs)
	}
	exit, err := netip.ParseAddr(a.Peer)
	if err != nil {
		return Seen{}, fmt.Errorf("%w: its peer is not an address", ErrNotOurs)
	}
	seen := Seen{Exit: exit.Unmap().WithZone("")}
	for _, name := range ForwardingHeaders {
		if _, there := a.Forwarded[name]; there {
			seen.Leaks = append(seen.Leaks, name)
		}
	}
	slices.Sort(seen.Leaks)
	return seen, nil
}

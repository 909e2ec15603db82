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
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
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
	// maxName is the length in bytes to which header names are cut.
	maxName = 64
	// hidden replaces a value that must not be repeated.
	hidden = "(not repeated)"
	// HiddenName replaces a header name that must not be repeated.
	HiddenName = "(a name that is not repeated)"
)

// proxyAuthorization carries the proxy's password and must never reach a target.
const proxyAuthorization = "Proxy-Authorization"

// Answer is the body of a response.
type Answer struct {
	// Nonce of the request.
	Nonce string `json:"nonce"`
	// Peer is the source IP address of the connection.
	Peer string `json:"peer"`
	// Forwarded contains what Forwarding returns for the request.
	Forwarded map[string]string `json:"forwarded"`
	// Others are the names of the other headers, sorted.
	Others []string `json:"others"`
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
	answer := Answer{Nonce: nonce, Peer: peer(r)}
	answer.addHeaders(r.Header)
	body, err := json.Marshal(answer)
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
		return clip(r.RemoteAddr, maxValue) // not a TCP socket
	}
	return from.Addr().Unmap().WithZone("").String()
}

// addHeaders fills Forwarded, then Others, up to MaxAnswer.
func (a *Answer) addHeaders(h http.Header) {
	left := MaxAnswer - 2048 // for the nonce and the peer
	fits := func(texts ...string) bool {
		for _, t := range texts {
			quoted, _ := json.Marshal(t) // a string: never fails
			left -= len(quoted) + 1
		}
		return left >= 0
	}
	forwarding := Forwarding(h)
	a.Forwarded, a.Others = map[string]string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(forwarding)) {
		if fits(name, forwarding[name]) {
			a.Forwarded[name] = forwarding[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		name = clip(name, maxName)
		if _, there := forwarding[name]; !there && fits(name) {
			a.Others = append(a.Others, name)
		}
	}
}

func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "")
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "")
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

// Seen is what an Answer proves. It contains no text from the peer but header names of
// up to 40 letters, digits and hyphens.
type Seen struct {
	// Exit is the address that the target saw.
	Exit netip.Addr
	// Leaks are the headers that were added or changed, and name a proxy or carry an IP
	// address, sorted.
	Leaks []string
	// Added are the other headers that were added, sorted.
	Added []string
}

// ErrNotOurs means that the body is not the response to the request with this nonce.
var ErrNotOurs = errors.New("the body is not the echo endpoint's response to this probe")

// Read parses the body of the response to the request with this nonce, which was sent
// with the headers sent. Its errors wrap ErrNotOurs.
func Read(body []byte, nonce string, sent ...string) (Seen, error) {
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
	for name := range a.Forwarded {
		seen.Leaks = append(seen.Leaks, presentable(name))
	}
	for _, name := range a.Others {
		if !slices.Contains(sent, name) {
			seen.Added = append(seen.Added, presentable(name))
		}
	}
	seen.Leaks, seen.Added = sorted(seen.Leaks), sorted(seen.Added)
	return seen, nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,40}$`)

// presentable returns name if it can be shown in a message.
func presentable(name string) string {
	if headerName.MatchString(name) {
		return name
	}
	return HiddenName
}

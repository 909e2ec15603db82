package probe

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
)

// proxyMarks is what the headers of a response show about the proxy. Only codes from the
// tables below are kept: no text of the proxy reaches a message.
type proxyMarks struct {
	own       bool  // the proxy wrote the response: it has X-Squid-Error, or Proxy-Status with an error
	challenge bool  // Proxy-Authenticate, which targets do not send and proxies do not forward
	cause     cause // zero if the proxy gave no code, or an unknown one
}

// cause is the meaning of an error code. The status decides the reason unless it is set.
type cause struct {
	reason Reason
	text   string
}

const (
	headerSquidError  = "X-Squid-Error"
	headerProxyStatus = "Proxy-Status"
	headerChallenge   = "Proxy-Authenticate"
)

const (
	textNoAddress = "its DNS has no address for the target's name"
	textDenied    = "its rules deny this client or the target"
	textConnRST   = "the target refuses its connection"
	textConnTime  = "its connection to the target timed out"
	textNoRoute   = "it has no route to the target"
)

// squidCauses are the values of X-Squid-Error, with or without the errno, as squid 5.7,
// 6.13 and 7.7 send them. Squid 5 reports a name without an address as
// ERR_CANNOT_FORWARD with status 500, or as ERR_READ_ERROR 0 for plain requests.
var squidCauses = map[string]cause{
	"ERR_DNS_FAIL":            {ReasonUpstreamFailed, textNoAddress},
	"ERR_CANNOT_FORWARD":      {ReasonUpstreamFailed, textNoAddress + ", or its rules permit no direct connection"},
	"ERR_READ_ERROR 0":        {ReasonUpstreamFailed, textNoAddress + ", or the target closed the connection"},
	"ERR_CONNECT_FAIL":        {ReasonUpstreamFailed, "it cannot connect to the target"},
	"ERR_CONNECT_FAIL 101":    {ReasonUpstreamFailed, textNoRoute},
	"ERR_CONNECT_FAIL 110":    {ReasonUpstreamFailed, textConnTime},
	"ERR_CONNECT_FAIL 111":    {ReasonUpstreamFailed, textConnRST},
	"ERR_CONNECT_FAIL 113":    {ReasonUpstreamFailed, textNoRoute},
	"ERR_SOCKET_FAILURE":      {ReasonUpstreamFailed, "it has no socket left; raise its limit of open files"},
	"ERR_ZERO_SIZE_OBJECT":    {ReasonUpstreamFailed, "the target closed the connection without a response"},
	"ERR_SHUTTING_DOWN":       {ReasonUpstreamFailed, "it shuts down"},
	"ERR_ACCESS_DENIED":       {ReasonConnectRefused, textDenied},
	"ERR_FORWARDING_DENIED":   {ReasonConnectRefused, textDenied},
	"ERR_INVALID_URL":         {ReasonConnectRefused, "it takes the target's name or port for invalid"},
	"ERR_CACHE_ACCESS_DENIED": {ReasonProxyAuthRefused, ""},
}

// statusCauses are the error types of Proxy-Status (RFC 9209, 2.3).
var statusCauses = map[string]cause{
	"dns_timeout":               {ReasonUpstreamFailed, "its DNS did not answer for the target's name"},
	"dns_error":                 {ReasonUpstreamFailed, textNoAddress},
	"destination_not_found":     {ReasonUpstreamFailed, textNoAddress},
	"destination_unavailable":   {ReasonUpstreamFailed, "it cannot reach the target"},
	"destination_ip_prohibited": {ReasonConnectRefused, "its rules deny the address of the target"},
	"destination_ip_unroutable": {ReasonUpstreamFailed, textNoRoute},
	"connection_refused":        {ReasonUpstreamFailed, textConnRST},
	"connection_terminated":     {ReasonUpstreamFailed, "the target closed the connection"},
	"connection_timeout":        {ReasonUpstreamFailed, textConnTime},
	"connection_limit_reached":  {ReasonUpstreamFailed, "it has reached its limit of connections"},
	"http_request_denied":       {ReasonConnectRefused, textDenied},
}

// texts are for statuses whose class alone says too little.
var texts = map[int]string{
	http.StatusPaymentRequired: "its provider demands payment, or the traffic of the plan is used up",
	http.StatusTooManyRequests: "it limits the rate of requests",
}

// note records one header line.
func (m *proxyMarks) note(name, value string) {
	switch {
	case strings.EqualFold(name, headerChallenge):
		m.challenge = true
	case strings.EqualFold(name, headerSquidError):
		code, _, _ := strings.Cut(value, " ")
		exact, known := squidCauses[value]
		if !known {
			exact = squidCauses[code]
		}
		m.own, m.cause = true, exact
	case strings.EqualFold(name, headerProxyStatus):
		if kind := proxyStatusError(value); kind != "" {
			m.own, m.cause = true, statusCauses[kind]
		}
	}
}

func marksOf(h http.Header) proxyMarks {
	var m proxyMarks
	for _, name := range []string{headerChallenge, headerProxyStatus, headerSquidError} {
		for _, value := range h.Values(name) {
			m.note(name, value)
		}
	}
	return m
}

// proxyStatusError returns the parameter error of the last member: the intermediary
// that is closest to the client. Quoted strings may contain anything, so they are skipped.
func proxyStatusError(value string) string {
	var bare strings.Builder
	quoted, escaped := false, false
	for _, c := range value {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted:
			bare.WriteRune(c)
		}
	}
	member := bare.String()
	member = member[strings.LastIndexByte(member, ',')+1:]
	for param := range strings.SplitSeq(member, ";") {
		if name, kind, ok := strings.Cut(strings.TrimSpace(param), "="); ok && name == "error" {
			return kind
		}
	}
	return ""
}

// refusal returns the error for a response that the proxy itself wrote. The class of the
// status decides: 5xx, and what is no status at all (RFC 9110, 15), means that the proxy
// could not reach the target, 4xx that it refuses.
func (m *proxyMarks) refusal(status int, request string, sentCredentials bool) error {
	text := fmt.Sprintf("the proxy answered %d to %s", status, request)
	switch {
	case m.asksForCredentials(status) || m.cause.reason == ReasonProxyAuthRefused:
		return authRefused(text, sentCredentials)
	case m.cause.text != "":
		return stageError{m.cause.reason, text + ": " + m.cause.text}
	case !m.own && (status < 400 || fromOtherServers(status)):
		return stageError{ReasonConnectFailed, text + ", which opens no tunnel; check that it is a proxy"}
	case status >= 500:
		return stageError{ReasonUpstreamFailed, text + ": it cannot reach the target; check its DNS and egress"}
	}
	return stageError{ReasonConnectRefused, text + ": " + cmp.Or(texts[status], "its policy denies this client or the target")}
}

// asksForCredentials reports whether a response that the proxy wrote demands them.
func (m *proxyMarks) asksForCredentials(status int) bool {
	return status == http.StatusProxyAuthRequired || status == http.StatusUnauthorized ||
		m.challenge && status == http.StatusForbidden
}

// fromOtherServers reports whether servers that are no proxies answer CONNECT with
// status: they do not understand the request.
func fromOtherServers(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return true
	}
	return false
}

func authRefused(text string, sentCredentials bool) error {
	if sentCredentials {
		return stageError{ReasonProxyAuthRefused, text + ": it does not accept the credentials of credentialsRef"}
	}
	return stageError{ReasonProxyAuthRefused, text + ": it requires credentials; set credentialsRef"}
}

package probe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bounds on the target's response. A longer body is read up to the bound and counts
// as complete: it has shown that the proxy forwards data.
const (
	maxHeaderBytes  = 64 << 10
	maxBodyBytes    = 64 << 10
	maxRawBodyBytes = 4 * maxBodyBytes // the bound with room for chunked encoding
)

// exchange sends the request and reads the response up to the end of its headers.
func (a *attempt) exchange(_ context.Context) error {
	if _, err := a.conn.Write(a.request()); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: a.conn, N: maxHeaderBytes}
	a.br = bufio.NewReader(limited)
	response, err := readResponse(a.br)
	if limited.N <= 0 {
		return errTooLong
	}
	if err != nil {
		return err
	}
	limited.N = maxRawBodyBytes
	a.response = response
	return a.checkStatus()
}

func (a *attempt) request() []byte {
	var b bytes.Buffer
	uri, forwarded := a.target.path, a.forwarded()
	if forwarded {
		uri = "http://" + a.target.hostField + uri
	}
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\n", uri, a.target.hostField, userAgent)
	if a.auth != "" && forwarded {
		fmt.Fprintf(&b, "Proxy-Authorization: %s\r\n", a.auth)
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// readResponse skips interim responses, unlike http.ReadResponse.
func readResponse(br *bufio.Reader) (*http.Response, error) {
	for range maxInterim + 1 {
		response, err := http.ReadResponse(br, nil)
		switch {
		case err != nil:
			return nil, err
		case response.StatusCode >= 200:
			return response, nil
		}
	}
	return nil, errInterims
}

func (a *attempt) checkStatus() error {
	status := a.response.StatusCode
	if a.req.HealthCheck.Expects(status) {
		return nil
	}
	text := fmt.Sprintf("%s answered %d", a.target.host, status)
	if a.forwarded() {
		marks := marksOf(a.response.Header)
		if status == http.StatusProxyAuthRequired || marks.own || marks.challenge && refuses(status) {
			request := "the request"
			if a.foreign = status != http.StatusProxyAuthRequired && !marks.challenge; a.foreign {
				request += ", or a proxy in front of " + a.target.host + " did"
			}
			return marks.refusal(status, request, a.auth != "")
		}
		text = fmt.Sprintf("%s or the proxy itself answered %d (an https probeURL makes the difference visible)", a.target.host, status)
	}
	switch {
	case refuses(status) && !a.forwarded():
		return stageError{ReasonTargetRefused, text + ": the proxy works, the target refuses its address or the rate of requests"}
	case status >= 300 && status < 400:
		return stageError{ReasonUnexpectedStatus, text + "; redirects are not followed"}
	}
	return stageError{ReasonUnexpectedStatus, fmt.Sprintf("%s, which is none of %v", text, a.req.HealthCheck.ExpectedStatusCodes)}
}

// refuses reports whether a target answers with status to clients that it blocks.
// Without a tunnel the proxy itself may have sent it, so that it proves nothing.
func refuses(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

func (a *attempt) readBody(_ context.Context) error {
	if a.nonce != "" {
		return a.readProof()
	}
	_, err := io.Copy(io.Discard, io.LimitReader(a.response.Body, maxBodyBytes))
	return err
}

// testOpen repeats the successful request of a without credentials, within a's
// deadline: a proxy that does not answer is closed.
func (p *Prober) testOpen(ctx context.Context, a *attempt, r *Result) {
	b, _ := p.begin(a.req)
	b.auth, b.start, b.deadline = "", time.Now(), a.deadline
	open := b.run(ctx)
	if open.Reason == ReasonCanceled || open.Reason == ReasonProberFault || open.Reason == ReasonResolverFailed {
		return
	}
	r.OpenTested = true
	// In a tunnel the target's verified certificate is proof enough, whatever its
	// response is.
	if open.Outcome == Success || a.target.tunnel && open.Stage > StageTLS {
		r.Outcome, r.Reason, r.Stage = Failure, ReasonOpenProxy, StageConnect
		if !a.target.tunnel {
			r.Stage = StageHTTP
		}
		r.Message = message(r.Stage, "the proxy accepts requests without credentials: anyone can use it")
	}
}

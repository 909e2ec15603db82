package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
)

// nonceBytes is the length of a nonce that no proxy can guess.
const nonceBytes = 12

func newNonce() string {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}

// readProof reads the echo endpoint's response: it must carry this request's nonce, and
// contains the source address and the headers that the proxy added.
func (a *attempt) readProof() error {
	body, err := io.ReadAll(io.LimitReader(a.response.Body, echo.MaxAnswer))
	if err != nil {
		return err
	}
	a.seen, err = echo.Read(body, a.nonce)
	if err != nil {
		return stageError{ReasonWrongContent, err.Error() + "; the proxy answers in its place, or exitProof is set for another kind of URL"}
	}
	if len(a.seen.Leaks) > 0 && a.req.HealthCheck.ExitProof.OnHeaderLeak == v1alpha1.FailOnHeaderLeak {
		return stageError{ReasonHeaderLeak, "the proxy adds " + strings.Join(a.seen.Leaks, ", ") + " to requests"}
	}
	return nil
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

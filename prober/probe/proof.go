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

// nonceBytes is enough that no proxy guesses it.
const nonceBytes = 12

func newNonce() string {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}

// readProof reads the echo endpoint's answer: that it is the answer to this very
// request, which address it came from, and what the proxy added to it.
func (a *attempt) readProof() error {
	body, err := io.ReadAll(io.LimitReader(a.response.Body, echo.MaxAnswer))
	if err != nil {
		return err
	}
	a.seen, err = echo.Read(body, a.nonce)
	if err != nil {
		return refusal{ReasonWrongContent, err.Error() + "; the proxy answers in its place, or exitProof is set for another kind of URL"}
	}
	if len(a.seen.Leaks) > 0 && a.req.HealthCheck.ExitProof.OnHeaderLeak == v1alpha1.FailOnHeaderLeak {
		return refusal{ReasonHeaderLeak, "the proxy adds " + strings.Join(a.seen.Leaks, ", ") + " to requests"}
	}
	return nil
}

// testOpen makes the request of a, which worked, once more without credentials.
// It has what a has left of the deadline: silence lets nobody through.
func (p *Prober) testOpen(ctx context.Context, a *attempt, r *Result) {
	b, _ := p.begin(a.req)
	b.auth, b.start, b.deadline = "", time.Now(), a.deadline
	open := b.run(ctx)
	if open.Reason == ReasonCanceled || open.Reason == ReasonProberFault || open.Reason == ReasonResolverFailed {
		return
	}
	r.OpenTested = true
	// In a tunnel the target's verified certificate is proof enough, whatever the
	// target then says.
	if open.Outcome == Success || a.target.tunnel && open.Stage > StageTLS {
		r.Outcome, r.Reason, r.Stage = Failure, ReasonOpenProxy, StageConnect
		if !a.target.tunnel {
			r.Stage = StageHTTP
		}
		r.Message = message(r.Stage, "the proxy let a probe without credentials through: anybody can use it")
	}
}

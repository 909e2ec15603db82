package walk

import (
	"context"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// otherTarget is a target for which no proxy is in cooldown.
const otherTarget = "another.example"

// coolDown is step 3.
func (w *walker) coolDown(ctx context.Context) error {
	request := want(map[string]string{"geo": "eu"}, w.targetHost())
	first, err := w.leaseAndReport(ctx, request)
	if err != nil {
		return err
	}
	second, err := w.leaseAndReport(ctx, request)
	if err != nil {
		return err
	}
	if first.Proxy.Name == second.Proxy.Name {
		return fmt.Errorf("%s was leased for %s again, right after rate_limited was reported", second.Proxy.Name, request.Target)
	}
	if err := w.allCool(ctx, request); err != nil {
		return err
	}
	request.Target = otherTarget
	other, err := w.api.granted(ctx, request)
	if err != nil {
		return err
	}
	w.say("for target %s %s is granted: cooldowns are per target", request.Target, other.Proxy.Name)
	return w.releaseTwice(ctx, first, second, other)
}

func (w *walker) leaseAndReport(ctx context.Context, request client.Want) (*client.Lease, error) {
	l, err := w.api.granted(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := l.Report(ctx, client.Report{Result: client.RateLimited, Target: request.Target}); err != nil {
		return nil, err
	}
	w.say("leased %s for target %s, reported rate_limited", l.Proxy.Name, request.Target)
	return l, nil
}

// allCool checks the 409 that a crawler gets when every match is in cooldown.
func (w *walker) allCool(ctx context.Context, request client.Want) error {
	r, err := w.api.refused(ctx, request)
	if err != nil {
		return err
	}
	w.say("409 %s: %s (considered %d, inCooldown %d, Retry-After %.0f s)", r.Code, r.Message, r.Counts.Considered, r.Counts.InCooldown, r.RetryAfter.Seconds())
	if r.Code != "no_match" || r.Counts.Considered != 2 || r.Counts.InCooldown != 2 || r.RetryAfter < time.Second || r.Message == "" {
		return fmt.Errorf("the refusal has no explanation: %+v", *r)
	}
	return nil
}

// releaseTwice checks that a release is idempotent.
func (w *walker) releaseTwice(ctx context.Context, leases ...*client.Lease) error {
	for _, l := range leases {
		if err := l.Release(ctx); err != nil {
			return err
		}
		if err := w.api.releaseAgain(ctx, l.ID); err != nil {
			return err
		}
	}
	proxies, err := w.api.list(ctx)
	if err != nil {
		return err
	}
	for _, p := range proxies {
		if p.ActiveLeases != 0 {
			return fmt.Errorf("%s still has %d leases after all were released", p.Name, p.ActiveLeases)
		}
	}
	w.say("released all, and released all again: 204 each time")
	return nil
}

package walk

import (
	"context"
	"fmt"
)

// otherTarget is a target for which nothing cools.
const otherTarget = "another.example"

// coolDown is step 3.
func (w *walker) coolDown(ctx context.Context) error {
	request := leaseRequest{Selector: map[string]string{"geo": "eu"}, Target: w.targetHost(), TTLSeconds: leaseTTL}
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

func (w *walker) leaseAndReport(ctx context.Context, request leaseRequest) (*grant, error) {
	g, err := w.api.granted(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := w.api.report(ctx, g.LeaseID, "rate_limited", request.Target); err != nil {
		return nil, err
	}
	w.say("leased %s for target %s, reported rate_limited", g.Proxy.Name, request.Target)
	return g, nil
}

// allCool checks the 409 that a crawler gets when every match cools.
func (w *walker) allCool(ctx context.Context, request leaseRequest) error {
	r, err := w.api.refused(ctx, request)
	if err != nil {
		return err
	}
	w.say("409 %s: %s (considered %d, inCooldown %d, Retry-After %d s)", r.Error, r.Message, r.Considered, r.InCooldown, r.RetryAfterSeconds)
	if r.Error != "no_match" || r.Considered != 2 || r.InCooldown != 2 || r.RetryAfterSeconds < 1 || r.Message == "" {
		return fmt.Errorf("the refusal does not explain itself: %+v", *r)
	}
	return nil
}

// releaseTwice checks that a release can be repeated without harm.
func (w *walker) releaseTwice(ctx context.Context, grants ...*grant) error {
	for _, g := range grants {
		for range 2 {
			if err := w.api.release(ctx, g.LeaseID); err != nil {
				return err
			}
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

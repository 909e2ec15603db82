package client

import (
	"context"
	"slices"
)

// Attempts calls f up to n times, each with a lease of another proxy, until its Outcome
// asks for no retry. It sends the reports and releases the leases; both are best effort.
//
// A ban or captcha is reported when another proxy got the page, or when one proxy alone
// was refused. If two or more were and none got the page, the URL refuses everyone:
// nothing is reported. Refused leases are held until that is clear.
//
// Attempts returns the last Outcome. It returns an error only when f was not called.
func (c *Client) Attempts(ctx context.Context, w Want, n int, f func(ctx context.Context, l *Lease) Outcome) (Outcome, error) {
	var last Outcome
	var refused []refusal
	defer func() {
		for _, r := range refused {
			_ = r.lease.Release(context.WithoutCancel(ctx))
		}
	}()
	w.Exclude = slices.Clone(w.Exclude)
	for i := range max(1, n) {
		l, err := c.Acquire(ctx, w)
		if err != nil && i == 0 {
			return Outcome{}, err
		}
		if err != nil {
			break // no other proxy
		}
		// Only the first attempt waits for proxies that do not exist.
		w.Exclude, w.WaitForMatch = append(w.Exclude, l.Proxy.FullName()), false
		last = l.attempt(ctx, f)
		if last.Report.refusal() {
			refused = append(refused, refusal{l, last.Report})
		}
		if !last.Retry {
			break
		}
	}
	if last.Report.Result == OK || len(refused) == 1 {
		for _, r := range refused {
			_ = r.lease.Report(ctx, r.report)
		}
	}
	return last, nil
}

// refusal is a report that waits for the attempts through other proxies.
type refusal struct {
	lease  *Lease
	report Report
}

// refusal reports whether the site refused the request.
func (r Report) refusal() bool { return r.Result == Banned || r.Result == Captcha }

// attempt calls f. Unless the proxy was refused, it sends the report and releases the lease.
func (l *Lease) attempt(ctx context.Context, f func(context.Context, *Lease) Outcome) (o Outcome) {
	defer func() {
		if !o.Report.refusal() {
			_ = l.Release(context.WithoutCancel(ctx))
		}
	}()
	o = f(l.during(ctx))
	if !o.Report.refusal() {
		_ = l.Report(ctx, o.Report)
	}
	return o
}

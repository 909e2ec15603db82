package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// controlTimeout bounds a call of the stand-in's control surface.
const controlTimeout = 10 * time.Second

// compute lets the Compute Engine stand-in err.
type compute struct {
	lab     *Lab
	variant string
	// faults as the stand-in's control surface takes them.
	faults []map[string]any
	// zone that is gone, and how.
	zone, mode string
}

// computeFaults are the variants that no zone is to blame for.
func computeFaults(variant string) []map[string]any {
	insert := func(more map[string]any) []map[string]any {
		more["op"] = "insert"
		return []map[string]any{more}
	}
	switch variant {
	case plan.ComputeQuota:
		return insert(map[string]any{"operationError": map[string]any{
			"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded. Limit: 8.0 in region europe-west1.",
			"quotaMetric": "compute.googleapis.com/cpus", "quotaLimit": 8, "httpStatus": 403,
		}})
	case plan.ComputeStockout:
		return insert(map[string]any{"operationError": map[string]any{
			"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "The zone does not have enough resources available to fulfill the request.", "httpStatus": 503,
		}})
	case plan.ComputePermanent:
		return insert(map[string]any{"status": 400, "reason": "invalid", "message": "Invalid value for field 'resource.machineType'."})
	case plan.ComputeTransient:
		return []map[string]any{{"status": 503, "reason": "backendError", "message": "Backend error"}}
	case plan.ComputeRateLimit:
		return []map[string]any{{"status": 403, "reason": "rateLimitExceeded", "message": "Rate Limit Exceeded"}}
	case plan.ComputeDropRequest:
		return []map[string]any{{"dropRequest": true}}
	case plan.ComputeDropAnswer:
		return []map[string]any{{"dropAnswer": true}}
	case plan.ComputeNeverEnds:
		return []map[string]any{{"op": "insert", "operationNeverEnds": true}, {"op": "delete", "operationNeverEnds": true}}
	case plan.ComputeSlow:
		return []map[string]any{{"delayMillis": 2500}}
	case plan.ComputeNoList:
		return []map[string]any{{"op": "list", "status": 500, "reason": "internalError", "message": "Internal error"}}
	}
	return nil
}

func newCompute(l *Lab, variant string, pick uint64) (Fault, error) {
	c := &compute{lab: l, variant: variant, faults: computeFaults(variant)}
	c.mode = map[string]string{
		plan.ComputeZoneGone: "unreachable", plan.ComputeZoneLate: "unreachable-late", plan.ComputeZoneSilent: "silent",
	}[variant]
	if c.mode != "" {
		zones := l.Fleet.Zones()
		c.zone = zones[pick%uint64(len(zones))]
	}
	if c.mode == "" && len(c.faults) == 0 {
		return nil, fmt.Errorf("compute cannot be made %q", variant)
	}
	return c, nil
}

func (c *compute) Window() history.Fault {
	f := history.Fault{Family: history.Compute, Subject: "gcestandin", Detail: c.variant}
	if c.zone != "" {
		f.Detail += " " + c.zone
	}
	return f
}

func (c *compute) Inject(ctx context.Context) (Heal, error) {
	var errs []error
	for _, f := range c.faults {
		errs = append(errs, c.lab.control(ctx, http.MethodPost, "/control/faults", f))
	}
	if c.zone != "" {
		errs = append(errs, c.setZone(ctx, c.mode))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, c.heal(ctx))
	}
	return c.heal, nil
}

func (c *compute) heal(ctx context.Context) error {
	err := c.lab.control(ctx, http.MethodDelete, "/control/faults", nil)
	if c.zone != "" {
		err = errors.Join(err, c.setZone(ctx, ""))
	}
	return err
}

func (c *compute) setZone(ctx context.Context, mode string) error {
	return c.lab.control(ctx, http.MethodPut, "/control/zones/"+c.zone, map[string]any{"mode": mode})
}

// control calls the stand-in's control surface.
func (l *Lab) control(ctx context.Context, method, path string, in any) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode a fault of Compute Engine: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, l.ComputeURL+path, body)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("control Compute Engine: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode >= 300 {
		return fmt.Errorf("control Compute Engine: %s %s: %s: %s", method, path, resp.Status, text)
	}
	return err
}

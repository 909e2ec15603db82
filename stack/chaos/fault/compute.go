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

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// controlTimeout is for one call of the stand-in's control surface.
const controlTimeout = 10 * time.Second

// computeFaults are the faults that the stand-in's control surface takes, by variant.
var computeFaults = map[string][]map[string]any{
	plan.ComputeQuota: {{"op": "insert", "operationError": map[string]any{
		"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded. Limit: 8.0 in region europe-west1.",
		"quotaMetric": "compute.googleapis.com/cpus", "quotaLimit": 8, "httpStatus": 403,
	}}},
	plan.ComputeStockout: {{"op": "insert", "operationError": map[string]any{
		"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "The zone does not have enough resources available to fulfill the request.", "httpStatus": 503,
	}}},
	plan.ComputePermanent:   {{"op": "insert", "status": 400, "reason": "invalid", "message": "Invalid value for field 'resource.machineType'."}},
	plan.ComputeTransient:   {{"status": 503, "reason": "backendError", "message": "Backend error"}},
	plan.ComputeRateLimit:   {{"status": 403, "reason": "rateLimitExceeded", "message": "Rate Limit Exceeded"}},
	plan.ComputeDropRequest: {{"dropRequest": true}},
	plan.ComputeDropAnswer:  {{"dropAnswer": true}},
	plan.ComputeNeverEnds:   {{"op": "insert", "operationNeverEnds": true}, {"op": "delete", "operationNeverEnds": true}},
	plan.ComputeSlow:        {{"delayMillis": 2500}},
	plan.ComputeNoList:      {{"op": "list", "status": 500, "reason": "internalError", "message": "Internal error"}},
}

// zoneModes are the ways in which a list lacks a zone, by variant.
var zoneModes = map[string]string{
	plan.ComputeZoneGone: "unreachable", plan.ComputeZoneLate: "unreachable-late", plan.ComputeZoneSilent: "silent",
}

// zone picks one for the faults that need it.
func (l *Lab) zone(pick uint64) string { return fleet.Zones[pick%uint64(len(fleet.Zones))] }

// compute makes the Compute Engine stand-in return errors, or lists without a zone.
func (l *Lab) compute(variant, zone string) Inject {
	faults, mode := computeFaults[variant], zoneModes[variant]
	if mode == "" && len(faults) == 0 {
		return nil
	}
	setZone := func(ctx context.Context, mode string) error {
		return l.control(ctx, http.MethodPut, "/control/zones/"+zone, map[string]any{"mode": mode})
	}
	heal := func(ctx context.Context) error {
		return errors.Join(l.control(ctx, http.MethodDelete, "/control/faults", nil), setZone(ctx, ""))
	}
	return func(ctx context.Context) (Heal, error) {
		err := setZone(ctx, mode)
		for _, f := range faults {
			err = errors.Join(err, l.control(ctx, http.MethodPost, "/control/faults", f))
		}
		if err != nil {
			return nil, errors.Join(err, heal(ctx))
		}
		return heal, nil
	}
}

// control calls the stand-in's control surface.
func (l *Lab) control(ctx context.Context, method, path string, in any) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode a fault of Compute Engine: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, l.ComputeURL+path, bytes.NewReader(body))
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

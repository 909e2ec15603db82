package check

import (
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// unwell makes the Pod's Proxy something else than Healthy for a while.
func unwell(at float64, status string) func(*scene) {
	return func(x *scene) {
		bad := *x.objects["pod ready"]
		bad.Name = "pod"
		bad.Phase = "Unhealthy"
		o := x.proxy("pod unwell", at, bad)
		o.Conditions[1].Status = status
		good := *x.objects["pod ready"]
		good.Name = "pod"
		x.proxy("pod well", at+10, good)
	}
}

func TestNoFlips(t *testing.T) {
	fault := func(f history.Fault) func(*scene) {
		return func(x *scene) {
			unwell(52, "False")(x)
			f.Stamp, f.ID, f.From, f.To = stamp(50), 30, s(46), s(50)
			x.add(history.Record{Fault: &f})
		}
	}
	hold(t, NoFlips, map[string]mutation{
		"while the target was down":   {unwell(52, "False"), "went from True to False", nil, false},
		"to Unknown, after a restart": {unwell(43, "Unknown"), "went from True to Unknown", nil, false},
		"after nothing at all":        {unwell(180, "False"), "and the proxy worked all the time", nil, false},
		"the proxy was dead": {func(x *scene) {
			unwell(52, "False")(x)
			for at, state := range map[float64]history.State{46: history.Lying, 49: history.Alive} {
				x.add(history.Record{Truth: &history.Truth{Stamp: stamp(at), Proxy: "default/pod", UID: "up", Endpoint: podAt, State: state}})
			}
		}, "", nil, false},
		"the proxy was dead, and the verdict was late": {func(x *scene) {
			unwell(59, "False")(x)
			for at, state := range map[float64]history.State{38: history.Dead, 39: history.Alive} {
				x.add(history.Record{Truth: &history.Truth{Stamp: stamp(at), Proxy: "default/pod", UID: "up", Endpoint: podAt, State: state}})
			}
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(58), ID: 30, Family: history.Kill, Subject: "webhooks", From: s(45), To: s(58)}})
		}, "", nil, false},
		"its node was away":       {fault(history.Fault{Family: history.Kill, Subject: "node"}), "", nil, false},
		"our prober was away":     {fault(history.Fault{Family: history.Kill, Subject: "prober"}), "and the proxy worked all the time", nil, false},
		"the instance is another": {func(x *scene) { unwell(52, "False")(x); x.objects["pod unwell"].InstanceID = "pod-2" }, "", nil, false},
		"the machine was starved": {func(x *scene) {
			unwell(52, "False")(x)
			x.add(history.Record{Pressure: &history.Pressure{Stamp: stamp(48), Over: s(1), Waited: s(0.2), Late: s(0.7)}})
		}, "excused: a timer was 700ms late at 48s", nil, true},
		"the machine was busy": {func(x *scene) {
			unwell(52, "False")(x)
			x.add(history.Record{Pressure: &history.Pressure{Stamp: stamp(48), Over: s(1), Waited: s(1), Late: s(0.1)}})
		}, "and the proxy worked all the time", nil, false},
	})
}

func TestDeadProxy(t *testing.T) {
	grant := func(at float64) func(*scene) {
		return func(x *scene) { x.grant("D", at, at+5, 140) }
	}
	fault := func(subject string, to float64) func(*scene) {
		return func(x *scene) {
			grant(89)(x)
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(to), ID: 30, Family: history.Freeze, Subject: subject, From: s(to - 2), To: s(to)}})
		}
	}
	down := func(from, to, at float64) func(*scene) {
		return func(x *scene) {
			grant(at)(x)
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(to), ID: 31, Family: history.TargetDown, Subject: "target", From: s(from), To: s(to)}})
		}
	}
	hold(t, DeadProxy, map[string]mutation{
		"dead for too long":                  {grant(83), "was dead for 23s, and the limit is 17s", nil, false},
		"not yet":                            {grant(76), "", nil, false},
		"just alive again":                   {func(x *scene) { grant(89.95)(x) }, "", nil, false},
		"the prober was frozen":              {fault("prober", 60), "", nil, false},
		"the prober was frozen before":       {fault("prober", 58), "the limit is 17s", nil, false},
		"the hooks were frozen":              {fault("webhooks", 88), "the limit is 17s", nil, false},
		"the API server was frozen":          {fault("apiserver", 88), "", nil, false},
		"the target was down when it died":   {down(58, 66, 78), "until 1m6s", nil, true},
		"the target was back long before":    {down(55, 61, 89), "dead for 29s", nil, false},
		"the target went down again in time": {down(76, 77, 89), "until 1m17s", nil, true},
		"the target went down too late":      {down(83, 88, 89), "dead for 29s", nil, false},
		"asked for before that":              {func(x *scene) { x.grant("D", 75, 95, 140).Answered = s(80) }, "", nil, false},
		"the second answer under a key": {func(x *scene) {
			x.call("lost", 59, history.Call{Kind: history.Acquire, Failure: history.Broken, Key: "d"})
			x.grant("D", 80, 85, 140).Key = "d"
		}, "", nil, false},
	})
}

func TestRefusals(t *testing.T) {
	with := func(name string, f func(c *history.Call)) func(*scene) {
		return func(x *scene) { f(x.calls[name]) }
	}
	hold(t, Refusals, map[string]mutation{
		"without Retry-After":   {with("none", func(c *history.Call) { c.RetryAfter = "" }), `Retry-After ""`, nil, false},
		"at once":               {with("none", func(c *history.Call) { c.RetryAfter = "0" }), `Retry-After "0"`, nil, false},
		"without a text":        {with("nothing", func(c *history.Call) { c.Detail = "" }), "without a code or a text", nil, false},
		"a defect of ours":      {with("none", func(c *history.Call) { c.Status, c.Code = 500, "internal" }), "status 500 internal", nil, false},
		"no store, and no time": {with("none", func(c *history.Call) { c.Status, c.RetryAfter = 503, "" }), "status 503", nil, false},
		"no store":              {with("none", func(c *history.Call) { c.Status = 503 }), "", nil, false},
		"gone without a reason": {with("L2 unknown", func(c *history.Call) { c.Status = 410 }), "410 without a reason", nil, false},
		"no such route":         {with("L2 unknown", func(c *history.Call) { c.Code = "unknown_route" }), "404 unknown_route", nil, false},
		"junk":                  {with("none", func(c *history.Call) { c.Status, c.Failure = 0, history.Odd }), "malformed response", nil, false},
		"no answer":             {with("none", func(c *history.Call) { c.Status, c.Failure = 0, history.Broken }), "", nil, false},
	})
}

func TestResources(t *testing.T) {
	with := func(f func(m *history.Metrics)) func(*scene) {
		return func(x *scene) { f(x.metrics["after"]) }
	}
	hold(t, Resources, map[string]mutation{
		"goroutines":  {with(func(m *history.Metrics) { m.Goroutines = 137 }), "goroutines: 100 in the baseline, 137", nil, false},
		"descriptors": {with(func(m *history.Metrics) { m.FDs = 65 }), "open descriptors", nil, false},
		"heap":        {with(func(m *history.Metrics) { m.Heap = 37 << 20 }), "heap bytes", nil, false},
		"RSS":         {with(func(m *history.Metrics) { m.RSS = 149 << 20 }), "bytes of RSS", nil, false},
		"series":      {with(func(m *history.Metrics) { m.Series = 401 }), "series", nil, false},
		"a little of everything": {with(func(m *history.Metrics) {
			m.Goroutines, m.FDs, m.Heap, m.RSS, m.Series = 136, 64, 36<<20, 148<<20, 400
		}), "", nil, false},
		"less":                {with(func(m *history.Metrics) { m.Goroutines, m.Series = 10, -1 }), "", nil, false},
		"one that is no more": {with(func(m *history.Metrics) { m.Process = "other" }), "does it run?", nil, false},
		"one odd sample of many": {func(x *scene) {
			for at := 281.0; at < 284; at++ {
				m := *x.metrics["after"]
				m.At = s(at)
				x.add(history.Record{Metrics: &m})
			}
			x.metrics["after"].Goroutines = 10_000
		}, "", nil, false},
	})
}

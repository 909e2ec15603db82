package check

import (
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

func TestCapacity(t *testing.T) {
	three := func(x *scene) {
		x.grant("A", 20, 30, 11)
		x.grant("B", 21, 30, 12)
		x.grant("C", 22, 30, 13)
	}
	hold(t, Capacity, map[string]mutation{
		"three of two": {three, "granted beside 2 held leases", nil, false},
		"by two domains, which know nothing of each other": {func(x *scene) {
			three(x)
			x.calls["C"].Domain = "redis"
		}, "", nil, false},
		"one was released": {func(x *scene) {
			three(x)
			x.call("A released", 21.5, history.Call{Kind: history.Release, Status: 204, LeaseID: "A"})
		}, "", nil, false},
		"one was perhaps released": {func(x *scene) {
			three(x)
			x.call("A released", 21.5, history.Call{Kind: history.Release, Failure: history.Broken, LeaseID: "A"})
		}, "", nil, false},
		"a release that was refused is none": {func(x *scene) {
			three(x)
			x.call("A released", 21.5, history.Call{Kind: history.Release, Failure: history.Refused, LeaseID: "A"})
		}, "granted beside 2 held leases", nil, false},
		"one had ended": {func(x *scene) { three(x); x.calls["A"].ExpiresAt = s(21.9) }, "", nil, false},
		"one had been renewed": {func(x *scene) {
			three(x)
			x.calls["A"].ExpiresAt = s(21.9)
			x.call("A renewed", 21, history.Call{Kind: history.Renew, Status: 200, LeaseID: "A", FencingToken: 11, ExpiresAt: s(31)})
		}, "granted beside 2 held leases", nil, false},
		"on another instance": {func(x *scene) {
			three(x)
			x.calls["A"].Endpoint = "127.3.0.9:3128"
		}, "", nil, false},
		"of the Proxy before, of that name": {func(x *scene) {
			three(x)
			x.act("gone", 21.5, history.Delete, "default/ext", "", nil).Uncertain = true
		}, "", []Promise{NotStuck}, false},
		"the limit was just lowered": {func(x *scene) {
			three(x)
			w := wanted("", "", extAt)
			w.MaxLeases = 3
			x.act("raised", 19, history.Edit, "default/ext", "ue", w)
			x.act("lowered", 21, history.Edit, "default/ext", "ue", wanted("", "", extAt))
		}, "", nil, false},
		"the limit was lowered long ago": {func(x *scene) {
			three(x)
			w := wanted("", "", extAt)
			w.MaxLeases = 3
			x.act("raised", 3, history.Edit, "default/ext", "ue", w)
			x.act("lowered", 7, history.Edit, "default/ext", "ue", wanted("", "", extAt))
		}, "granted beside 2 held leases", nil, false},
		"and discovery could not know": {func(x *scene) {
			three(x)
			w := wanted("", "", extAt)
			w.MaxLeases = 3
			x.act("raised", 3, history.Edit, "default/ext", "ue", w)
			x.act("lowered", 7, history.Edit, "default/ext", "ue", wanted("", "", extAt))
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(8), ID: 9, Family: history.Freeze, Subject: "discovery-file", From: s(6.5), To: s(8)}})
		}, "", nil, false},
	})
}

func TestLeaseKept(t *testing.T) {
	gone := func(reason string) func(*scene) {
		return func(x *scene) {
			c := x.calls["L1 seen"]
			c.Status, c.Code, c.Reason, c.Detail, c.ExpiresAt = 410, "lease_gone", reason, "it ended", 0
		}
	}
	unknown := func(x *scene) {
		c := x.calls["L1 seen"]
		c.Status, c.Code, c.Detail, c.ExpiresAt = 404, "unknown_lease", "no", 0
	}
	hold(t, LeaseKept, map[string]mutation{
		"unknown while it runs": {unknown, "get returned 404", nil, false},
		"expired too early":     {gone("expired"), "get returned 410", nil, false},
		"a renewal is unknown": {func(x *scene) {
			c := x.calls["L1 renewed"]
			c.Status, c.Code, c.Detail, c.ExpiresAt = 404, "unknown_lease", "no", 0
			delete(x.calls, "L1 seen")
		}, "renew returned 404", nil, false},
		"after its release": {func(x *scene) {
			unknown(x)
			x.call("L1 released early", 37, history.Call{Kind: history.Release, Failure: history.Timeout, LeaseID: "L1"})
		}, "", nil, false},
		"at its very end": {func(x *scene) {
			unknown(x)
			x.calls["L1"].ExpiresAt, x.calls["L1 renewed"].ExpiresAt = s(38.12), s(38.12)
		}, "", nil, false},
		"an answer that says nothing": {func(x *scene) { c := x.calls["L1 seen"]; c.Status, c.Failure = 0, history.Broken }, "", nil, false},
		"a replacement that was none": {gone("instance_replaced"), "the Proxy had the same instance all the time", nil, false},
		"a deletion that was none":    {gone("proxy_deleted"), "the Proxy had the same instance all the time", nil, false},
		"the Proxy was perhaps deleted": {func(x *scene) {
			gone("proxy_deleted")(x)
			x.act("d", 37, history.Delete, "default/ext", "", nil).Uncertain = true
		}, "", nil, false},
		"the Proxy was certainly deleted": {func(x *scene) { gone("proxy_deleted")(x); x.act("d", 37, history.Delete, "default/ext", "other", nil) }, "", nil, false},
		"the endpoint was edited": {func(x *scene) {
			gone("instance_replaced")(x)
			x.act("e", 36, history.Edit, "default/ext", "ue", wanted("", "", "127.3.0.7:3128"))
			x.act("f", 37, history.Edit, "default/ext", "ue", wanted("", "", extAt))
		}, "", nil, false},
		"another one under its key": {func(x *scene) {
			c := x.calls["L4 again"]
			c.LeaseID, c.FencingToken = "L5", 105
		}, "its Idempotency-Key got another lease", nil, false},
		"another one under its key, later": {func(x *scene) {
			c := x.calls["L4 again"]
			c.LeaseID, c.FencingToken, c.Asked, c.Answered, c.ExpiresAt = "L5", 105, s(59.1), s(59.2), s(65)
		}, "", nil, false},
	})
}

func TestSuccessor(t *testing.T) {
	lost := func(x *scene) {
		c := x.calls["L2 seen"]
		c.Status, c.Code, c.Detail, c.ExpiresAt = 404, "unknown_lease", "no", 0
	}
	hold(t, Successor, map[string]mutation{
		"released with the expired one": {lost, "ran until a release of the expired lease L1", []Promise{LeaseKept}, false},
		"ended by a report on the expired one": {func(x *scene) {
			lost(x)
			x.calls["L1 released"].Kind = history.Report
		}, "ran until a report of the expired lease L1", []Promise{LeaseKept}, false},
		"a report on the expired one": {func(x *scene) { x.calls["L1 released"].Kind = history.Report }, "", nil, false},
	})
}

func TestFencing(t *testing.T) {
	hold(t, Fencing, map[string]mutation{
		"used twice": {func(x *scene) { x.calls["L2"].FencingToken = 101; x.calls["L2 seen"].FencingToken = 101 }, "token 101 was given twice", nil, false},
		"smaller than one before": {func(x *scene) {
			x.calls["L4"].FencingToken = 103
			x.call("x", 45.5, history.Call{Kind: history.Acquire, Status: 201, LeaseID: "X", FencingToken: 109, ExpiresAt: s(46)})
		}, "was given after 109", nil, false},
		"changed":                   {func(x *scene) { x.calls["L2 seen"].FencingToken = 103 }, "its token was 102 and is 103", nil, false},
		"one lease for two clients": {func(x *scene) { x.calls["L4 again"].Key = "" }, "granted to two requests", nil, false},
		"of another domain":         {func(x *scene) { x.calls["R1"].FencingToken = 102 }, "", nil, false},
		"of two requests at once": {func(x *scene) {
			x.calls["L2"].Asked = s(29)
			for _, c := range []string{"L1", "L1 renewed", "L1 seen"} {
				x.calls[c].FencingToken = 102
			}
			for _, c := range []string{"L2", "L2 seen"} {
				x.calls[c].FencingToken = 101
			}
		}, "", nil, false},
		"by an earlier try under its key": {func(x *scene) {
			x.call("lost", 29, history.Call{Kind: history.Acquire, Failure: history.Broken, Key: "k"})
			for _, c := range []string{"L1", "L1 renewed", "L1 seen"} {
				x.calls[c].FencingToken = 109
			}
			for _, c := range []string{"L2", "L2 seen"} {
				x.calls[c].FencingToken = 110
			}
			x.calls["L4 again"].FencingToken = 104
		}, "", nil, false},
	})
}

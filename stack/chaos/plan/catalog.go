package plan

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Act is the kind of the steps in which a user acts on a Proxy. All others are faults.
const Act history.Family = "act"

// Processes that are killed and frozen.
const (
	APIServer      = "apiserver"
	Etcd           = "etcd"
	Metacontroller = "metacontroller"
	Webhooks       = "webhooks"
	Cloud          = "cloud"
	Prober         = "prober"
	Node           = "node"
	DiscoveryFile  = "discovery-file"
	DiscoveryRedis = "discovery-redis-0"
	DiscoveryOther = "discovery-redis-1"
)

// Variants of steps.
const (
	HooksSlow    = "slow"     // seconds, within the hooks' timeout
	HooksTooSlow = "too-slow" // beyond the timeout
	HooksCut     = "cut"      // the response ends in the middle
	HooksFail    = "fail"     // 503

	ComputeQuota       = "quota"            // the operation ends with QUOTA_EXCEEDED
	ComputeStockout    = "stockout"         // the operation ends with ZONE_RESOURCE_POOL_EXHAUSTED
	ComputePermanent   = "permanent"        // inserts fail permanently
	ComputeTransient   = "transient"        // 503 for every call
	ComputeRateLimit   = "rate-limit"       // 403 rateLimitExceeded
	ComputeDropRequest = "drop-request"     // connections break before the call is done
	ComputeDropAnswer  = "drop-answer"      // connections break after it was done
	ComputeNeverEnds   = "never-ends"       // operations stay RUNNING
	ComputeSlow        = "slow"             // calls take seconds
	ComputeNoList      = "no-list"          // lists fail
	ComputeZoneGone    = "zone-unreachable" // lists lack a zone and report that on the first page
	ComputeZoneLate    = "zone-late"        // the same, on the last page
	ComputeZoneSilent  = "zone-silent"      // the same, in a warning

	RedisKill   = "kill"
	RedisFreeze = "freeze"

	ProxyDie       = "die"
	ProxyHang      = "hang"
	ProxyJunk      = "junk"
	ProxyPage      = "page"
	ProxyElsewhere = "elsewhere"
	ProxyForbid    = "forbid"

	InstanceDelete  = "delete"
	InstancePreempt = "preempt"
	InstanceRemove  = "remove"

	ActReplace  = "replace"  // an edit that needs another instance
	ActInPlace  = "in-place" // an edit that does not
	ActDelete   = "delete"
	ActRecreate = "recreate" // delete, and create under the same name once it is free
)

// card is a step without a time.
type card struct {
	kind             history.Family
	subject, variant string
	// least and most bound its length.
	least, most time.Duration
}

// slow is 1 when the system takes minutes to recover: a cloud adapter that has just
// started trusts no list for 2 minutes, and a zone without capacity rests for as long.
// The first round plays cards in the order of slow: 1, 0, -1.
func (c card) slow() int {
	switch {
	case c.variant == ComputeStockout, c.kind == history.Kill && slices.Contains(slowKills, c.subject):
		return 1
	case c.kind == history.Freeze && slices.Contains(slowKills, c.subject):
		return -1 // killed first, so frozen last: a killed process cannot be frozen
	}
	return 0
}

// verdictPath are the processes through which verdicts reach the crawlers.
var verdictPath = []string{APIServer, Etcd, Metacontroller, Prober}

// slowKills are the processes without which the adapter loses its Lease.
var slowKills = []string{Cloud, APIServer, Etcd}

// processNames has all processes but the node, which is no part of the system: it is
// killed and not frozen.
var processNames = []string{APIServer, Etcd, Metacontroller, Webhooks, Cloud, Prober, DiscoveryFile, DiscoveryRedis, DiscoveryOther}

// subjects has a card for each process.
func subjects(kind history.Family, least, most time.Duration, names ...string) []card {
	deck := variants(kind, least, most, names...)
	for i := range deck {
		deck[i].subject, deck[i].variant = deck[i].variant, ""
	}
	return deck
}

// variants has a card for each variant of a fault.
func variants(kind history.Family, least, most time.Duration, names ...string) []card {
	var deck []card
	for _, name := range names {
		deck = append(deck, card{kind: kind, variant: name, least: least, most: most})
	}
	return deck
}

// Decks of the lanes.
var (
	kills        = subjects(history.Kill, 100*time.Millisecond, 4*time.Second, slices.Insert(slices.Clone(processNames), 6, Node)...)
	freezes      = subjects(history.Freeze, time.Second, 8*time.Second, processNames...)
	surroundings = slices.Concat(
		variants(history.SlowHooks, 4*time.Second, 8*time.Second, HooksSlow, HooksTooSlow),
		variants(history.SlowHooks, 3*time.Second, 6*time.Second, HooksCut, HooksFail),
		variants(history.AdapterSocket, 2*time.Second, 8*time.Second, ""),
		variants(history.TargetDown, 5*time.Second, 15*time.Second, ""),
		variants(history.RedisAway, time.Second, 6*time.Second, RedisKill),
		variants(history.RedisAway, 2*time.Second, 8*time.Second, RedisFreeze),
		variants(history.DiskFull, 4*time.Second, 8*time.Second, ""),
	)
	computeFaults = variants(history.Compute, 2500*time.Millisecond, 6*time.Second,
		ComputeQuota, ComputeStockout, ComputePermanent, ComputeTransient, ComputeRateLimit, ComputeDropRequest,
		ComputeDropAnswer, ComputeNeverEnds, ComputeSlow, ComputeNoList, ComputeZoneGone, ComputeZoneLate, ComputeZoneSilent)
	externalFaults = variants(history.ProxyTruth, 4*time.Second, 25*time.Second,
		ProxyDie, ProxyHang, ProxyJunk, ProxyPage, ProxyElsewhere, ProxyForbid)
	hangs = variants(history.ProxyTruth, 2*time.Second, 20*time.Second, ProxyHang)
)

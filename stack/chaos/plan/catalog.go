package plan

import "time"

// Processes of the system that are killed and frozen.
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
	HooksSlow    = "slow"     // seconds, and within the engine's patience
	HooksTooSlow = "too-slow" // beyond it
	HooksCut     = "cut"      // the answer ends in the middle
	HooksFail    = "fail"     // 503

	ComputeQuota       = "quota"            // the operation ends with QUOTA_EXCEEDED
	ComputeStockout    = "stockout"         // the operation ends with ZONE_RESOURCE_POOL_EXHAUSTED
	ComputePermanent   = "permanent"        // inserts are refused for good
	ComputeTransient   = "transient"        // 503 to everything
	ComputeRateLimit   = "rate-limit"       // 403 rateLimitExceeded
	ComputeDropRequest = "drop-request"     // connections break before anything is done
	ComputeDropAnswer  = "drop-answer"      // and after it was done
	ComputeNeverEnds   = "never-ends"       // operations stay RUNNING
	ComputeSlow        = "slow"             // everything takes seconds
	ComputeNoList      = "no-list"          // lists fail
	ComputeZoneGone    = "zone-unreachable" // lists lack a zone, and say so on the first page
	ComputeZoneLate    = "zone-late"        // and say so on the last page
	ComputeZoneSilent  = "zone-silent"      // and hardly say so

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

	ActReplace  = "replace"  // an edit that asks for another instance
	ActInPlace  = "in-place" // an edit that does not
	ActDelete   = "delete"
	ActRecreate = "recreate" // delete, and create again under the old name as soon as it is free
)

// card is a step without a time.
type card struct {
	kind             Kind
	subject, variant string
	// least and most bound its length.
	least, most time.Duration
}

func processes() []string {
	return []string{
		APIServer, Etcd, Metacontroller, Webhooks, Cloud, Prober, Node, DiscoveryFile, DiscoveryRedis, DiscoveryOther,
	}
}

func kills() []card {
	var deck []card
	for _, name := range processes() {
		deck = append(deck, card{Kill, name, "", 100 * time.Millisecond, 4 * time.Second})
	}
	return deck
}

// freezes has all but the node, which is no part of the system.
func freezes() []card {
	var deck []card
	for _, name := range processes() {
		if name != Node {
			deck = append(deck, card{Freeze, name, "", time.Second, 8 * time.Second})
		}
	}
	return deck
}

func surroundings() []card {
	return []card{
		{Hooks, "", HooksSlow, 4 * time.Second, 8 * time.Second},
		{Hooks, "", HooksTooSlow, 4 * time.Second, 8 * time.Second},
		{Hooks, "", HooksCut, 3 * time.Second, 6 * time.Second},
		{Hooks, "", HooksFail, 3 * time.Second, 6 * time.Second},
		{Socket, "", "", 2 * time.Second, 8 * time.Second},
		{Target, "", "", 5 * time.Second, 15 * time.Second},
		{Redis, "", RedisKill, time.Second, 6 * time.Second},
		{Redis, "", RedisFreeze, 2 * time.Second, 8 * time.Second},
		{Disk, "", "", 4 * time.Second, 8 * time.Second},
	}
}

func computeTroubles() []card {
	var deck []card
	for _, variant := range []string{
		ComputeQuota, ComputeStockout, ComputePermanent, ComputeTransient, ComputeRateLimit, ComputeDropRequest,
		ComputeDropAnswer, ComputeNeverEnds, ComputeSlow, ComputeNoList, ComputeZoneGone, ComputeZoneLate, ComputeZoneSilent,
	} {
		deck = append(deck, card{Compute, "", variant, 2500 * time.Millisecond, 6 * time.Second})
	}
	return deck
}

// externalTroubles are all that proxies of others can do.
func externalTroubles() []card {
	var deck []card
	for _, variant := range []string{ProxyDie, ProxyHang, ProxyJunk, ProxyPage, ProxyElsewhere, ProxyForbid} {
		deck = append(deck, card{Proxy, "", variant, 4 * time.Second, 25 * time.Second})
	}
	return deck
}

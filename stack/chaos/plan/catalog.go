package plan

import (
	"slices"
	"time"
)

// Kind of a step.
type Kind string

// Kinds of steps.
const (
	Kill     Kind = "kill"     // a process gets SIGKILL and is started again
	Freeze   Kind = "freeze"   // a process gets SIGSTOP and continues
	Hooks    Kind = "hooks"    // the hooks' responses are late, cut or missing
	Socket   Kind = "socket"   // the adapter's socket is away
	Compute  Kind = "compute"  // the Compute Engine stand-in returns errors
	Target   Kind = "target"   // the probe target is closed
	Redis    Kind = "redis"    // Redis is killed or frozen
	Disk     Kind = "disk"     // the disk of the lease journal is full
	Proxy    Kind = "proxy"    // an External proxy is switched, or the process of another one broken
	Instance Kind = "instance" // a Pod is deleted, a VM preempted or removed
	Act      Kind = "act"      // a user acts on a Proxy
)

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
	kind             Kind
	subject, variant string
	// least and most bound its length.
	least, most time.Duration
	// slow is 1 when the system takes minutes to recover: a cloud adapter that has just
	// started trusts no list for 2 minutes, and a zone without capacity rests for as long.
	// The first round plays cards in the order of slow: 1, 0, -1.
	slow int
}

var processNames = []string{APIServer, Etcd, Metacontroller, Webhooks, Cloud, Prober, Node, DiscoveryFile, DiscoveryRedis, DiscoveryOther}

// verdictPath are the processes through which verdicts reach the crawlers.
var verdictPath = []string{APIServer, Etcd, Metacontroller, Prober}

// slowKills are the processes without which the adapter loses its Lease.
var slowKills = []string{Cloud, APIServer, Etcd}

func kills() []card {
	var deck []card
	for _, name := range processNames {
		c := card{kind: Kill, subject: name, least: 100 * time.Millisecond, most: 4 * time.Second}
		if slices.Contains(slowKills, name) {
			c.slow = 1
		}
		deck = append(deck, c)
	}
	return deck
}

// freezes has all processes but the node, which is no part of the system.
func freezes() []card {
	var deck []card
	for _, name := range processNames {
		if name != Node {
			c := card{kind: Freeze, subject: name, least: time.Second, most: 8 * time.Second}
			if slices.Contains(slowKills, name) { // killed first, so frozen last: a killed process cannot be frozen
				c.slow = -1
			}
			deck = append(deck, c)
		}
	}
	return deck
}

var surroundings = []card{
	{Hooks, "", HooksSlow, 4 * time.Second, 8 * time.Second, 0},
	{Hooks, "", HooksTooSlow, 4 * time.Second, 8 * time.Second, 0},
	{Hooks, "", HooksCut, 3 * time.Second, 6 * time.Second, 0},
	{Hooks, "", HooksFail, 3 * time.Second, 6 * time.Second, 0},
	{Socket, "", "", 2 * time.Second, 8 * time.Second, 0},
	{Target, "", "", 5 * time.Second, 15 * time.Second, 0},
	{Redis, "", RedisKill, time.Second, 6 * time.Second, 0},
	{Redis, "", RedisFreeze, 2 * time.Second, 8 * time.Second, 0},
	{Disk, "", "", 4 * time.Second, 8 * time.Second, 0},
}

func computeFaults() []card {
	var deck []card
	for _, variant := range []string{
		ComputeQuota, ComputeStockout, ComputePermanent, ComputeTransient, ComputeRateLimit, ComputeDropRequest,
		ComputeDropAnswer, ComputeNeverEnds, ComputeSlow, ComputeNoList, ComputeZoneGone, ComputeZoneLate, ComputeZoneSilent,
	} {
		c := card{kind: Compute, variant: variant, least: 2500 * time.Millisecond, most: 6 * time.Second}
		if variant == ComputeStockout {
			c.slow = 1
		}
		deck = append(deck, c)
	}
	return deck
}

// externalFaults are all faults of External proxies.
func externalFaults() []card {
	var deck []card
	for _, variant := range []string{ProxyDie, ProxyHang, ProxyJunk, ProxyPage, ProxyElsewhere, ProxyForbid} {
		deck = append(deck, card{kind: Proxy, variant: variant, least: 4 * time.Second, most: 25 * time.Second})
	}
	return deck
}

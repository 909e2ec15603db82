package redis

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// pair joins two names unambiguously.
func pair(a, b string) string { return strconv.Itoa(len(a)) + ":" + a + b }

// unpair splits a pair.
func unpair(s string) (a, b string, err error) {
	length, rest, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", fmt.Errorf("%q is not a pair of names", s)
	}
	return rest[:n], rest[n:], nil
}

func instanceName(i lease.Instance) string { return pair(i.ProxyUID, i.ID) }

func parseInstance(s string) (lease.Instance, error) {
	uid, id, err := unpair(s)
	return lease.Instance{ProxyUID: uid, ID: id}, err
}

// rest is the part of a record that the scripts pass through.
type rest struct {
	Proxy       string `json:"proxy,omitempty"`
	Holder      string `json:"holder,omitempty"`
	Session     string `json:"session,omitempty"`
	Target      string `json:"target,omitempty"`
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// parseRecord reads 'expires fence granted ttl length instance rest', as
// prelude.lua writes it.
func parseRecord(id, s string) (ledger.Record, error) {
	var n [5]int64
	text := s
	for i := range n {
		word, after, _ := strings.Cut(text, " ")
		v, err := strconv.ParseInt(word, 10, 64)
		if err != nil || v < 0 {
			return ledger.Record{}, fmt.Errorf("record of lease %s: number %d is %q", id, i+1, word)
		}
		n[i], text = v, after
	}
	if n[3] > int64(math.MaxInt64/time.Microsecond) {
		return ledger.Record{}, fmt.Errorf("record of lease %s: a TTL of %d µs", id, n[3])
	}
	if n[4] >= int64(len(text)) {
		return ledger.Record{}, fmt.Errorf("record of lease %s is too short", id)
	}
	instance, err := parseInstance(text[:n[4]])
	if err != nil {
		return ledger.Record{}, fmt.Errorf("record of lease %s: %w", id, err)
	}
	var r rest
	if err := json.Unmarshal([]byte(text[n[4]+1:]), &r); err != nil {
		return ledger.Record{}, fmt.Errorf("record of lease %s: %w", id, err)
	}
	return ledger.Record{Key: r.Key, Fingerprint: r.Fingerprint, Lease: lease.Lease{
		ID: id, Instance: instance, Proxy: r.Proxy, Holder: r.Holder, Session: r.Session, Target: r.Target,
		ExpiresAt: at(n[0]), FencingToken: uint64(n[1]),
		GrantedAt: at(n[2]), TTL: time.Duration(n[3]) * time.Microsecond,
	}}, nil
}

// isPlaceholder reports whether a record only takes a slot until it expires. See recount
// in repair.lua.
func isPlaceholder(r ledger.Record) bool { return r.Proxy == "" }

func formatRest(r ledger.Record) string {
	// Strings always encode.
	text, _ := json.Marshal(rest{
		Proxy: r.Proxy, Holder: r.Holder, Session: r.Session, Target: r.Target, Key: r.Key, Fingerprint: r.Fingerprint,
	})
	return string(text)
}

// formatRecord writes what parseRecord reads.
func formatRecord(r ledger.Record) string {
	instance := instanceName(r.Instance)
	return fmt.Sprintf("%d %d %d %d %d %s %s", r.ExpiresAt.UnixMicro(), r.FencingToken, r.GrantedAt.UnixMicro(),
		r.TTL.Microseconds(), len(instance), instance, formatRest(r))
}

// formatUntil writes what parseUntil reads.
func formatUntil(until time.Time, what string) string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s", until.UnixMicro(), what), " ")
}

// parseUntil reads 'until what'.
func parseUntil(s string) (time.Time, string, error) {
	word, what, _ := strings.Cut(s, " ")
	micros, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("%q does not start with a time", s)
	}
	return at(micros), what, nil
}

// parseSession parses a field of :sessions.
func parseSession(name, value string) (ledger.Session, error) {
	holder, session, err := unpair(name)
	if err != nil {
		return ledger.Session{}, err
	}
	until, instance, err := parseUntil(value)
	if err != nil {
		return ledger.Session{}, err
	}
	i, err := parseInstance(instance)
	return ledger.Session{Holder: holder, Name: session, Instance: i, Until: until}, err
}

// parseCooldown parses a field of :cooling.
func parseCooldown(name, value string) (ledger.Cooldown, error) {
	uid, target, err := unpair(name)
	if err != nil {
		return ledger.Cooldown{}, err
	}
	until, _, err := parseUntil(value)
	return ledger.Cooldown{ProxyUID: uid, Target: target, Until: until}, err
}

// parseNames splits names that end.lua has joined, each behind its length.
func parseNames(s string) ([]string, error) {
	var names []string
	for s != "" {
		name, rest, err := unpair(s)
		if err != nil {
			return nil, err
		}
		names, s = append(names, name), rest
	}
	return names, nil
}

// at converts a time of the scripts.
func at(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

package storetest

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func (m *model) coolsUntil(uid, target string, now time.Time) time.Time {
	until := m.cools[[2]string{uid, ""}]
	if u := m.cools[[2]string{uid, target}]; u.After(until) {
		until = u
	}
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

func (m *model) report(id string, rep lease.Report, now time.Time) error {
	l := m.find(id, now)
	if l == nil {
		return lease.ErrUnknown
	}
	target, length := rep.Cooldown(l.Target, Window)
	if length <= 0 {
		return nil
	}
	key := [2]string{l.Instance.ProxyUID, target}
	if full := m.targetsFull(key, now); full != nil {
		return full
	}
	if until := now.Add(length); until.After(m.cools[key]) {
		m.cools[key] = until
	}
	return nil
}

// targetsFull is the limit that refuses a cooldown, nil when none does.
func (m *model) targetsFull(key [2]string, now time.Time) error {
	if key[1] == "" || now.Before(m.cools[key]) {
		return nil
	}
	var ofProxy, all []time.Time
	for k, until := range m.cools {
		if k[1] == "" || !now.Before(until) {
			continue
		}
		all = append(all, until)
		if k[0] == key[0] {
			ofProxy = append(ofProxy, until)
		}
	}
	limits := Limits()
	switch {
	case len(ofProxy) >= limits.TargetsPerProxy:
		return &lease.LimitError{Limit: lease.LimitTargetsPerProxy, Most: limits.TargetsPerProxy, FreeAt: slices.MinFunc(ofProxy, time.Time.Compare)}
	case len(all) >= limits.Targets:
		return &lease.LimitError{Limit: lease.LimitTargets, Most: limits.Targets, FreeAt: slices.MinFunc(all, time.Time.Compare)}
	}
	return nil
}

func (m *model) cooldowns(now time.Time) (n int) {
	for _, until := range m.cools {
		if now.Before(until) {
			n++
		}
	}
	return n
}

func (m *model) endCooldowns(uid, target string, now time.Time) (ended int) {
	for key, until := range m.cools {
		if key[0] != uid || target != "" && key[1] != target {
			continue
		}
		if now.Before(until) {
			ended++
		}
		delete(m.cools, key)
	}
	return ended
}

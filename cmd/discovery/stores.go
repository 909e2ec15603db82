package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/journal"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis"
)

// leaseStore is a store with background work.
type leaseStore interface {
	lease.Store
	// Run does the background work until ctx ends.
	Run(ctx context.Context) error
	// Close releases the store's files and connections.
	Close() error
}

// storeConfig is the configuration of all stores.
type storeConfig struct {
	where    string // all of --lease-store
	cooldown time.Duration
	clock    clock.WithTicker
	log      *slog.Logger
}

// storeKind is a scheme of --lease-store.
type storeKind struct {
	form  string // of its values
	check func(where string) error
	open  func(cfg storeConfig) (leaseStore, error)
}

var storeKinds = []storeKind{
	{form: "memory", check: wholeWord, open: openMemory},
	{form: "file:PATH", check: hasPath, open: openJournal},
	{form: "redis://HOST:PORT", check: hasRedis, open: openRedis},
	{form: "rediss://HOST:PORT", check: hasRedis, open: openRedis},
	{form: "unix:///PATH", check: hasRedis, open: openRedis},
}

// storeForms lists the forms for messages.
func storeForms() string {
	var forms []string
	for _, k := range storeKinds {
		forms = append(forms, k.form)
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// storeKindOf finds the kind of a --lease-store. Its errors omit everything after the
// scheme, which may contain a password.
func storeKindOf(where string) (storeKind, error) {
	scheme, _, _ := strings.Cut(where, ":")
	for _, k := range storeKinds {
		if known, _, _ := strings.Cut(k.form, ":"); known == scheme {
			return k, k.check(where)
		}
	}
	return storeKind{}, fmt.Errorf("want %s", storeForms())
}

// openStore opens the store of --lease-store.
func openStore(cfg storeConfig) (leaseStore, error) {
	kind, err := storeKindOf(cfg.where)
	if err != nil {
		return nil, err
	}
	return kind.open(cfg)
}

func wholeWord(where string) error {
	if strings.Contains(where, ":") {
		return errors.New("memory takes nothing behind it")
	}
	return nil
}

func openMemory(cfg storeConfig) (leaseStore, error) { return memory.New(cfg.clock, cfg.cooldown), nil }

func hasPath(where string) error {
	if strings.TrimPrefix(where, "file:") == "" || !strings.HasPrefix(where, "file:") {
		return errors.New("want file:PATH, such as file:/var/lib/discovery/leases")
	}
	if strings.HasPrefix(where, "file://") {
		return errors.New("want file:PATH without slashes that belong to a host, such as file:/var/lib/discovery/leases")
	}
	return nil
}

func openJournal(cfg storeConfig) (leaseStore, error) {
	return journal.Open(journal.Config{
		Path: strings.TrimPrefix(cfg.where, "file:"), Cooldown: cfg.cooldown, Clock: cfg.clock, Log: cfg.log,
	})
}

func hasRedis(where string) error {
	_, _, err := redis.ParseURL(where)
	return err
}

func openRedis(cfg storeConfig) (leaseStore, error) {
	options, prefix, err := redis.ParseURL(cfg.where)
	if err != nil {
		return nil, err
	}
	redis.Quiet()
	return redis.Open(redis.Config{Options: options, Prefix: prefix, Cooldown: cfg.cooldown, Clock: cfg.clock, Log: cfg.log}), nil
}

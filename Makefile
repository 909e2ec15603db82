SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Debian keeps squid in /usr/sbin, which ordinary users do not have in PATH.
export PATH := $(PATH):/usr/sbin:/sbin

# The parts of `make test` come one after the other, also under -j: the walk
# measures times.
.NOTPARALLEL:

# One set of flags for every build without the race detector, the builds inside
# tests among them: Go's build cache then holds each package once. Static
# programs, since the images have no libc. Tests alone need cgo, for -race.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

BIN := $(CURDIR)/bin
FUZZTIME ?= 10s
SOAK ?= 1000000
OVERLAY ?= release

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)


.PHONY: demo
demo: build ## walk the whole job on a local stack, checking every step (first time: builds an API server for minutes)
	@exec $(BIN)/stack demo

.PHONY: up
up: build ## run a local stack until Ctrl-C
	@exec $(BIN)/stack up

.PHONY: build
build: ## build our programs into bin/
	@echo 'building our programs (minutes the first time, then seconds)'
	go build -o $(BIN)/ ./cmd/...

.PHONY: assets
assets: ## build etcd, kube-apiserver and kubectl once into the user's cache folder
	go build -o $(BIN)/ ./cmd/stack
	@exec $(BIN)/stack assets


IMAGE_PROGRAMS := webhooks cloud prober discovery
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: images
images: ## make container images of our programs into dist/, as an OCI layout with SBOMs (VERSION=...)
	mkdir -p dist/bin
	go build -ldflags '-s -w' -o dist/bin/ $(addprefix ./cmd/,$(IMAGE_PROGRAMS))
	go run -C tools ./images --bin $(CURDIR)/dist/bin --out $(CURDIR)/dist/images --version '$(VERSION)' \
		--revision "$$(git rev-parse HEAD 2>/dev/null || true)" --created "$$(git log -1 --format=%ct 2>/dev/null || echo 0)"

.PHONY: e2e-if-possible
e2e-if-possible:
	$(MAKE) e2e E2E_FLAGS=--if-possible

.PHONY: e2e
e2e: build $(BIN)/kustomize ## run the manifests with real Pods on a real node, and walk there (Linux, root)
	scripts/deps.sh node
	scripts/squid-rootfs.sh $(CURDIR)/dist/squid.tar
	go run -C tools ./images --bin $(BIN) --out $(CURDIR)/dist/e2e --version e2e \
		--programs $$(echo $(IMAGE_PROGRAMS) pause | tr ' ' ,) --squid $(CURDIR)/dist/squid.tar
	$(BIN)/kustomize build manifests/overlays/e2e > dist/e2e/manifests.yaml
	@exec $(BIN)/stack e2e $(E2E_FLAGS) --images dist/e2e/images.tar --manifests dist/e2e/manifests.yaml

# Not part of CI, which has no Docker.
.PHONY: kind
kind: ## install everything into a kind cluster and walk there (Docker, kind, kubectl)
	$(MAKE) images VERSION=dev
	scripts/kind.sh

# The first line of what it prints names the seed; CHAOS_FLAGS="--seed N" runs the
# same faults again.
.PHONY: chaos
chaos: build assets ## break the whole system in every way for 15 minutes, and check its promises (CHAOS_FLAGS="--seed N --duration 30m")
	@exec $(BIN)/stack chaos $(CHAOS_FLAGS)

# Always the same faults: nobody's change fails for what another seed would have
# found before it, too.
.PHONY: chaos-short
chaos-short: ## the shortest campaign, as in CI: about 3 minutes
	$(MAKE) chaos CHAOS_FLAGS="--seed 1 --duration 135s"

.PHONY: crawl
crawl: build assets ## crawl with fifty workers while proxies fail: without proxies, with a list of them, with leases (7 minutes)
	@exec $(BIN)/stack crawl $(CRAWL_FLAGS)

.PHONY: generate
generate: $(BIN)/controller-gen ## write deepcopy functions and CRDs anew from the Go types
	scripts/generate.sh $(BIN)/controller-gen api/v1alpha1 manifests/crd

.PHONY: verify
verify: $(BIN)/controller-gen ## fail when generated files are not what `make generate` writes
	scripts/verify-generated.sh $(BIN)/controller-gen

# The linters load what the tests compile: with the race detector, as those do.
RACE := CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) -race'

.PHONY: lint
lint: $(BIN)/staticcheck $(BIN)/lint $(BIN)/rooms $(BIN)/revive $(BIN)/govulncheck ## gofmt, go mod tidy, go vet, staticcheck, tools/lint, tools/rooms, revive, govulncheck
	@unformatted="$$(gofmt -l .)"; test -z "$$unformatted" || { printf 'not formatted, run gofmt -w on:\n%s\n' "$$unformatted"; exit 1; }
	go mod tidy -diff
	$(RACE) go vet ./...
	$(RACE) go vet -tags soak ./discovery/... ./prober/bench
	$(RACE) go vet -C client ./...
	$(RACE) $(BIN)/staticcheck ./...
	cd client && go mod tidy -diff && $(RACE) $(BIN)/staticcheck ./...
	$(RACE) go vet -vettool=$(BIN)/lint ./...
	$(RACE) go vet -C client -vettool=$(BIN)/lint ./...
	$(BIN)/rooms -root .
	$(BIN)/revive -config tools/lint/revive.toml -exclude tools/... -formatter plain ./...
	scripts/govulncheck.sh $(BIN)/govulncheck ./...

.PHONY: test
test: deps verify lint assets unit walk ## lint, all tests with the race detector, and the walk of the demo

.PHONY: ci
ci: test release e2e-if-possible chaos-short ## everything that CI runs, from a clean checkout

.PHONY: deps
deps: ## install what the tests start (squid, redis, curl, a C compiler, Python, Node, Chromium) when it is missing and we may
	scripts/deps.sh

# PX_SOURCES is for Go's test cache: tests that build and run our programs run
# again when a source has changed, and only then. `make lint` has vetted, and no
# test needs DWARF.
GO_TEST = CGO_ENABLED=1 PX_REQUIRE_ASSETS=1 PX_SOURCES=$$(scripts/sources.sh) go test $(IN) -race -vet=off -ldflags=-w -timeout 20m

.PHONY: unit
unit: ## all tests but the walk, with the race detector, against a real API server
	$(GO_TEST) $$(go list ./... | grep -v /cmd/stack$$)
	$(MAKE) unit-client IN='-C client'
	go test -C tools ./images ./lint ./rooms
	go test -C tools/rules -count=1 ./...

# The client for crawlers is a module of its own.
.PHONY: unit-client
unit-client:
	$(GO_TEST) ./...

# On its own, since it measures times.
.PHONY: walk
walk: ## the walk of `make demo` as a test, and what else concerns whole stacks
	$(GO_TEST) ./cmd/stack

.PHONY: fuzz
fuzz: ## run every fuzz target for a short while (FUZZTIME=10s)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## a million leases from each store and a million probes; fails when memory, goroutines, files or series grow (half an hour)
	PX_REQUIRE_REDIS=1 go test -tags soak -run '^TestSoak$$' -v -timeout 3h ./discovery/api -args -leases $(SOAK)
	go test -tags soak -run '^$$' -bench '^BenchmarkSoak$$' -benchtime 1x -timeout 3h ./prober/bench -args -probes $(SOAK)

.PHONY: bench
bench: $(BIN)/blackbox_exporter ## run the benchmarks, the prober's beside blackbox_exporter and a bare loop
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: release
release: $(BIN)/kustomize ## render each overlay of manifests/ into one file in dist/
	scripts/release.sh $(BIN)/kustomize dist

.PHONY: certs
certs: ## make TLS material and a token for Metacontroller and webhooks, once (CERTS_FLAGS="--renew token")
	go run ./cmd/certs $(CERTS_FLAGS)

.PHONY: install-metacontroller
install-metacontroller: ## install Metacontroller and our controller into kubectl's current cluster
	kubectl apply --server-side -k metacontroller/install/crds
	kubectl apply --server-side -k manifests/crd
	kubectl create namespace egress-proxies --dry-run=client -o yaml | kubectl apply --server-side -f -
	kubectl label --overwrite namespace egress-proxies pod-security.kubernetes.io/enforce=restricted
	test -e metacontroller/install/tls/kustomization.yaml || go run ./cmd/certs
	kubectl apply --server-side -k metacontroller

.PHONY: install
install: install-metacontroller ## install Metacontroller and our processes (OVERLAY=release; put your images into it first)
	scripts/discovery-token.sh
	kubectl apply --server-side -k manifests/overlays/$(OVERLAY)

.PHONY: uninstall
uninstall: ## take our controller out of the cluster, no Proxy left hanging (UNINSTALL_FLAGS=--delete-proxies)
	scripts/uninstall.sh $(UNINSTALL_FLAGS)

.PHONY: clean
clean: ## remove what was built here; the cached control plane stays
	rm -rf $(BIN) dist

# Tools come at the versions that tools/go.mod pins.
$(BIN)/controller-gen: tools/go.mod tools/go.sum
	go build -C tools -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen
$(BIN)/staticcheck: tools/go.mod tools/go.sum
	go build -C tools -o $@ honnef.co/go/tools/cmd/staticcheck
$(BIN)/lint: tools/go.mod tools/go.sum $(wildcard tools/lint/*.go)
	go build -C tools -o $@ ./lint
$(BIN)/rooms: tools/go.mod $(wildcard tools/rooms/*.go)
	go build -C tools -o $@ ./rooms
$(BIN)/revive: tools/go.mod tools/go.sum
	go build -C tools -o $@ github.com/mgechev/revive
$(BIN)/kustomize: tools/go.mod tools/go.sum
	go build -C tools -o $@ sigs.k8s.io/kustomize/kustomize/v5
$(BIN)/govulncheck: tools/go.mod tools/go.sum
	go build -C tools -o $@ golang.org/x/vuln/cmd/govulncheck
# A peer that a benchmark runs, from a module of its own.
$(BIN)/blackbox_exporter: tools/peers/go.mod tools/peers/go.sum
	go build -C tools/peers -o $@ github.com/prometheus/blackbox_exporter

#!/usr/bin/env bash
# Writes the component manifests/components/shards-N, which splits the prober into
# N shards: a Deployment for each, and the names of their Leases in the Role. The
# repository contains those for 2 and 4.
#
#   scripts/prober-shards.sh N [FOLDER]
#
# FOLDER is the output folder; the default is manifests/components/shards-N of the
# checkout.
set -euo pipefail
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
	sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
	exit
fi
if ! [[ ${1:-} =~ ^[1-9][0-9]{0,2}$ ]] || (($# > 2)); then
	echo "prober-shards: want the number of shards, 1 to 999, and perhaps a folder; see --help" >&2
	exit 2
fi
n=$1 out=${2:+$(realpath -m -- "$2")} # relative to the caller's folder, hence before cd
cd "$(dirname "$0")/.."
out=${out:-manifests/components/shards-$n}
base=$(realpath --relative-to="$out/0-of-$n" -m manifests/base/prober/workload)

mkdir -p "$out"
{
	cat <<END
# The prober in $n shards, each with its own Deployment. List this before ../ha, which
# doubles each of them. docs/capacity.md explains when to use it, and how to change n.
# Written by scripts/prober-shards.sh $n.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
END
	for ((i = 0; i < n; i++)); do echo "- $i-of-$n"; done
	cat <<END
patches:
# By label, since kustomize also matches the shards' Deployments by their original name.
- target:
    kind: Deployment
    labelSelector: app.kubernetes.io/name=prober,!crawl.example.com/prober-shard
  patch: |-
    \$patch: delete
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: prober
      namespace: egress-proxies
- target:
    kind: Role
    name: prober
    namespace: egress-proxies
  patch: |-
    - op: test
      path: /rules/1/resourceNames
      value: [prober-0-of-1]
    - op: replace
      path: /rules/1/resourceNames
      value:
END
	for ((i = 0; i < n; i++)); do echo "      - prober-$i-of-$n"; done
} >"$out/kustomization.yaml"

for ((i = 0; i < n; i++)); do
	mkdir -p "$out/$i-of-$n"
	cat >"$out/$i-of-$n/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $base
nameSuffix: -$i-of-$n
labels:
- includeSelectors: true
  pairs:
    crawl.example.com/prober-shard: $i-of-$n
- includeTemplates: true
  pairs:
    app.kubernetes.io/part-of: egress-proxies
patches:
- target:
    kind: Deployment
    name: prober
  patch: |-
    - op: test
      path: /spec/template/spec/containers/0/args/0
      value: --shard=0/1
    - op: replace
      path: /spec/template/spec/containers/0/args/0
      value: --shard=$i/$n
END
done

#!/usr/bin/env bash
# Renders every overlay of manifests/overlays into one file each.
# Usage: release.sh KUSTOMIZE OUT_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
kustomize=$1 out=$2

mkdir -p "$out"
for overlay in manifests/overlays/*/; do
	name=$(basename "$overlay")
	# Written to a temporary file first, so that a failure leaves no partial output.
	"$kustomize" build "$overlay" >"$out/.$name.yaml"
	mv "$out/.$name.yaml" "$out/egress-proxies-$name.yaml"
	echo "$out/egress-proxies-$name.yaml"
done

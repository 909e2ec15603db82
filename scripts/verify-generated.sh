#!/usr/bin/env bash
# Fails if the generated files are out of date with the Go types. It compares with a
# new copy in a temporary folder, so it needs no clean git state and changes no file.
# Usage: verify-generated.sh CONTROLLER_GEN
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh/api" "$fresh/crd" "$fresh/committed-crd"
scripts/generate.sh "$1" "$fresh/api" "$fresh/crd"
cp manifests/crd/crawl.example.com_*.yaml "$fresh/committed-crd"

if ! diff -u api/v1alpha1/zz_generated.deepcopy.go "$fresh/api/zz_generated.deepcopy.go" ||
	! diff -ru "$fresh/committed-crd" "$fresh/crd"; then
	echo "Generated files are out of date: run 'make generate' and commit what it changed." >&2
	exit 1
fi
echo "Generated files are current."

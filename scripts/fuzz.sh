#!/usr/bin/env bash
# Runs every fuzz target, one after the other, for the given time each.
# Usage: fuzz.sh TIME
set -euo pipefail
cd "$(dirname "$0")/.."

targets=$(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|/[^/]*:[0-9]+:func | |')
while read -r package target; do
	echo "== $package $target"
	module=.
	if [[ $package == ./client* ]]; then # a module of its own
		module=client package=.${package#./client}
	fi
	# Without the last flag a short run spends most of its time minimizing inputs.
	go test -C "$module" -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 20x "$package"
done <<<"$targets"

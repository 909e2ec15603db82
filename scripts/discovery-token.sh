#!/usr/bin/env bash
# Makes the bearer token that crawlers show to discovery, a random one, unless the
# Secret discovery-token is there. It prints no token. kubectl's current context
# is used (KUBECTL names another kubectl).
set -euo pipefail
namespace=egress-proxies secret=discovery-token
kubectl=${KUBECTL:-kubectl}

found=$("$kubectl" -n "$namespace" get secret "$secret" --ignore-not-found -o name)
if [ -n "$found" ]; then
	echo "the Secret $namespace/$secret is there; it stays as it is"
	exit
fi
# Through a pipe: arguments can be read by everybody on this machine.
head -c 32 /dev/urandom | base64 | tr -d '\n=' | tr '+/' '-_' |
	"$kubectl" -n "$namespace" create secret generic "$secret" --from-file=token=/dev/stdin

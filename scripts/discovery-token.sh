#!/usr/bin/env bash
# Creates the Secret discovery-token with a random bearer token for crawlers, unless it
# exists. The token is not printed. It uses kubectl's current context (KUBECTL names
# another kubectl).
#
#   scripts/discovery-token.sh     takes no arguments
set -euo pipefail
if (($# > 0)); then
	sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
	[[ $1 == --help || $1 == -h ]] && exit
	echo "discovery-token: unknown argument \"$1\"" >&2
	exit 2
fi
namespace=egress-proxies secret=discovery-token
kubectl=${KUBECTL:-kubectl}

found=$("$kubectl" -n "$namespace" get secret "$secret" --ignore-not-found -o name) || {
	echo "discovery-token: cannot ask for the Secret $namespace/$secret: is kubectl's context the right cluster?" >&2
	exit 1
}
if [ -n "$found" ]; then
	echo "the Secret $namespace/$secret is there; it stays as it is"
	exit
fi
# Through a pipe, since all users of this machine can read arguments.
head -c 32 /dev/urandom | base64 | tr -d '\n=' | tr '+/' '-_' |
	"$kubectl" -n "$namespace" create secret generic "$secret" --from-file=token=/dev/stdin || {
	echo "discovery-token: the Secret was not made; where there is no namespace $namespace yet,  make install-metacontroller  makes it" >&2
	exit 1
}

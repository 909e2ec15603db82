#!/usr/bin/env bash
# Creates a kind cluster, installs everything there and runs the walk: a Proxy turns
# Ready, a Pod leases it and crawls through it, an edit replaces it, and its deletion
# leaves no objects. Needs Docker, kind, kubectl and Internet access; `make kind`
# builds the images first. It can be run again.
#
#   scripts/kind.sh          takes no arguments; KIND_CLUSTER names another cluster
set -euo pipefail
if (($# > 0)); then
	sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
	[[ $1 == --help || $1 == -h ]] && exit
	echo "kind.sh: unknown argument \"$1\"" >&2
	exit 2
fi
cd "$(dirname "$0")/.."
cluster=${KIND_CLUSTER:-egress-proxies} images=${IMAGES:-dist/images/images.tar}
system=egress-proxies fleet=crawl crawlers=kind-crawlers

say() { printf '\n== %s\n' "$*"; }
fail() {
	printf 'kind.sh: %s\n' "$*" >&2
	exit 1
}
for program in kind kubectl; do
	command -v "$program" >/dev/null || fail "$program is not in PATH; without Docker, \`make e2e\` runs the same walk on a local node"
done
[[ -e $images ]] || fail "$images is not there: run  make images VERSION=dev"

say "cluster $cluster"
kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 180s
# A kubeconfig of its own, independent of kubectl's current context.
mkdir -p dist
export KUBECONFIG=$PWD/dist/kind.kubeconfig
(umask 077 && kind get kubeconfig --name "$cluster" >"$KUBECONFIG")
kind load image-archive "$images" --name "$cluster"

say "Metacontroller and our processes"
make install OVERLAY=kind
kubectl -n egress-proxies-metacontroller rollout status deployment/metacontroller --timeout=180s
kubectl -n "$system" rollout status deployment/webhooks deployment/prober statefulset/discovery --timeout=180s

say "a Proxy turns Ready"
kubectl apply --server-side -f - <<END
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: kind-demo, namespace: $fleet}
spec: {mode: Managed, provider: pods, port: 3128, attributes: {geo: here}}
END
ready() { kubectl -n "$fleet" wait px/kind-demo "--for=jsonpath={.status.port}=$1" --timeout=180s && kubectl -n "$fleet" wait px/kind-demo '--for=jsonpath={.status.phase}=Ready' --timeout=180s; }
ready 3128
kubectl -n "$fleet" get px -o wide

say "a Pod leases it and crawls through it"
kubectl create namespace "$crawlers" --dry-run=client -o yaml | kubectl apply --server-side -f -
kubectl label --overwrite namespace "$crawlers" crawl.example.com/crawlers=true
crawl() {
	# The token is passed on standard input, since other users can read arguments and Pods.
	kubectl -n "$system" get secret discovery-token -o 'go-template={{.data.token | base64decode}}{{"\n"}}' |
		kubectl -n "$crawlers" run "crawl-$RANDOM" --rm -i --restart=Never --quiet --image=docker.io/curlimages/curl:8.11.1 \
			--env="DISCOVERY=http://discovery.$system.svc:8090" --env=TARGET=https://example.com/ -- sh -c "$(cat scripts/kind-crawl.sh)"
}
crawl

say "an edit of spec.port replaces it"
kubectl -n "$fleet" patch px kind-demo --type=merge -p '{"spec":{"port":3129}}'
ready 3129
crawl

say "its deletion leaves no objects"
kubectl -n "$fleet" delete px kind-demo --timeout=180s
left=$(kubectl -n "$fleet" get px,pxp,pods -o name)
[[ -z $left ]] || fail "these objects are left: $left"
kubectl delete namespace "$crawlers" --wait=false

say "all steps passed"
echo "The cluster stays: export KUBECONFIG=$KUBECONFIG; kind delete cluster --name $cluster removes it."

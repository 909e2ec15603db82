#!/usr/bin/env bash
# Removes our CompositeController from a cluster without leaving Proxies whose
# finalizer no controller removes. `scripts/uninstall.sh --help` lists the flags.
set -euo pipefail

readonly controller=proxies
readonly finalizer=metacontroller.io/compositecontroller-proxies
readonly controllers=compositecontrollers.metacontroller.k8s.io
readonly proxies=proxies.crawl.example.com
readonly namespace=egress-proxies-metacontroller
readonly ours=app.kubernetes.io/part-of=egress-proxies,app.kubernetes.io/component=metacontroller

kubectl="${KUBECTL:-kubectl}"
timeout=120
delete_proxies=false
strip=false
metacontroller=false

usage() {
  cat <<USAGE
Removes the finalize hook from CompositeController "$controller", waits until
Metacontroller has removed its finalizer from every Proxy, and then deletes the
CompositeController. It is idempotent. It uses kubectl's current context
(KUBECONFIG; KUBECTL names another kubectl).

Usage: scripts/uninstall.sh [flags]

  --delete-proxies        first delete all Proxies in all namespaces and wait until
                          their instances are gone. Without this flag Proxies, Pods
                          and VMs are kept, and are no longer reconciled
  --with-metacontroller   at the end delete the Metacontroller that
                          metacontroller/install installed, with its namespace
                          and its rights
  --strip-finalizers      remove the finalizers directly if Metacontroller does not
                          do so in time, because it is gone or broken
  --timeout SECONDS       timeout of each wait (default $timeout)
USAGE
}

say() { printf 'uninstall: %s\n' "$*"; }
fail() {
  printf 'uninstall: %s\n' "$*" >&2
  exit 1
}

parse() {
  while [ $# -gt 0 ]; do
    case "$1" in
    --delete-proxies) delete_proxies=true ;;
    --with-metacontroller) metacontroller=true ;;
    --strip-finalizers) strip=true ;;
    --timeout)
      [[ "${2:-}" =~ ^[1-9][0-9]{0,4}$ ]] || fail "--timeout \"${2:-}\": want whole seconds, at least 1"
      timeout="$2"
      shift
      ;;
    --timeout=*)
      set -- --timeout "${1#--timeout=}" "${@:2}"
      continue
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown argument \"$1\"; see scripts/uninstall.sh --help" ;;
    esac
    shift
  done
}

k() { "$kubectl" --request-timeout=30s "$@"; }

# served KIND: whether the API server has the CRD. Exits if the request fails.
served() {
  local found
  found="$(k get crd "$1" --ignore-not-found -o name)" || fail "cannot ask the API server; is this the right cluster, and may you read CRDs?"
  [ -n "$found" ]
}

controller_exists() {
  local found
  served "$controllers" || return 1
  found="$(k get "$controllers" "$controller" --ignore-not-found -o name)" || fail "cannot read CompositeController $controller"
  [ -n "$found" ]
}

has_finalize_hook() {
  local hook
  hook="$(k get "$controllers" "$controller" --ignore-not-found -o 'jsonpath={.spec.hooks.finalize}')" || fail "cannot read CompositeController $controller"
  [ -n "$hook" ]
}

# held prints NAMESPACE NAME of each Proxy that carries our finalizer.
held() {
  k get "$proxies" -A -o "go-template={{range .items}}{{\$m := .metadata}}{{range .metadata.finalizers}}{{if eq . \"$finalizer\"}}{{\$m.namespace}} {{\$m.name}}{{\"\\n\"}}{{end}}{{end}}{{end}}"
}

all_proxies() { k get "$proxies" -A -o 'go-template={{range .items}}{{.metadata.namespace}} {{.metadata.name}}{{"\n"}}{{end}}'; }

count() { grep -c . || true; }

# await WHAT LISTER: waits, at most $timeout seconds, until LISTER prints nothing.
await() {
  local what="$1" lister="$2" deadline=$((SECONDS + timeout)) left last=
  while :; do
    left="$("$lister")" || fail "cannot list Proxies"
    [ -n "$left" ] || return 0
    if [ "$(count <<<"$left")" != "$last" ]; then
      last="$(count <<<"$left")"
      say "waiting for $last Proxies $what"
    fi
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 1
  done
}

# none_held: whether no Proxy has the finalizer.
none_held() {
  local left
  left="$(held)" || fail "cannot list Proxies"
  [ -z "$left" ]
}

# some prints the first few lines of its input for a message.
some() { head -n 5 | awk '{printf "%s%s/%s", sep, $1, $2; sep = ", "}'; }

remove_proxies() {
  say "deleting all Proxies"
  k delete "$proxies" -A --all --wait=false >/dev/null
  await "to be gone, with their instances" all_proxies && return
  fail "after $timeout s these Proxies are still there: $(all_proxies | some). Nothing else was changed. Their phase and events contain the reason:
  kubectl describe $proxies -n NAMESPACE NAME
If a provider is gone for good, annotate them crawl.example.com/abandon=true and run this again."
}

warn_of_what_stays() {
  local left
  left="$(all_proxies | count)"
  [ "$left" = 0 ] || say "WARNING: $left Proxies stay, with their Pods and VMs, and are no longer reconciled; --delete-proxies deletes them and their instances"
}

release_finalizers() {
  await "to lose their finalizer" held && return
  if controller_exists && has_finalize_hook; then
    fail "the finalize hook is back in CompositeController $controller: another client (a GitOps tool?) applies it again. Suspend that, then run this again."
  fi
  if [ "$strip" = true ]; then
    strip_finalizers
    return
  fi
  if controller_exists; then
    fail "after $timeout s Metacontroller has not removed the finalizer: $(held | some). Is it running and leading?
  kubectl -n $namespace get pods,lease
Start it and run this again; or, if it is gone for good, add --strip-finalizers. The CompositeController is still there."
  fi
  fail "CompositeController $controller is gone, and these Proxies still carry its finalizer: $(held | some). No controller removes it any more. Either apply it again (kubectl apply -k metacontroller) and run this again; or add --strip-finalizers, and delete their instances by hand."
}

# strip_finalizers removes only our finalizer: the "test" operation makes the patch
# fail if the list has changed since it was read.
strip_finalizers() {
  local where name index
  say "removing the finalizers directly"
  while read -r where name; do
    index="$(k get "$proxies" -n "$where" "$name" --ignore-not-found -o "go-template={{range \$i, \$f := .metadata.finalizers}}{{if eq \$f \"$finalizer\"}}{{\$i}}{{end}}{{end}}")"
    [ -n "$index" ] || continue
    k patch "$proxies" -n "$where" "$name" --type=json -p "[
      {\"op\": \"test\", \"path\": \"/metadata/finalizers/$index\", \"value\": \"$finalizer\"},
      {\"op\": \"remove\", \"path\": \"/metadata/finalizers/$index\"}]" >/dev/null
  done < <(held)
  none_held || fail "some Proxies got the finalizer back: $(held | some). Is Metacontroller running after all? Run this again."
}

remove_hook() {
  if ! controller_exists; then
    say "CompositeController $controller is not there"
    return
  fi
  has_finalize_hook || return 0
  say "removing the finalize hook"
  k patch "$controllers" "$controller" --type=merge -p '{"spec":{"hooks":{"finalize":null}}}' >/dev/null
  # Until Metacontroller receives the change, it still adds the finalizer to new Proxies.
  sleep 2
}

remove_controller() {
  controller_exists || return 0
  say "deleting CompositeController $controller"
  k delete "$controllers" "$controller" --ignore-not-found --timeout="${timeout}s" >/dev/null
}

remove_metacontroller() {
  [ "$metacontroller" = true ] || return 0
  say "deleting Metacontroller"
  k delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null
  k delete clusterrolebindings,clusterroles -l "$ours" >/dev/null
  k delete rolebindings -A -l "$ours" >/dev/null
}

main() {
  parse "$@"
  if served "$proxies"; then
    [ "$delete_proxies" = false ] || remove_proxies
    warn_of_what_stays
    remove_hook
    release_finalizers
    remove_controller
    # A Proxy created before Metacontroller received the change may have it again.
    none_held || fail "these Proxies got the finalizer at the last moment: $(held | some). Add --strip-finalizers and run this again."
  else
    say "there are no Proxies: their CRD is not there"
    remove_controller
  fi
  remove_metacontroller
  say "done. CRDs stay; kubectl delete crd $proxies proxyprobes.crawl.example.com deletes ours, with every Proxy"
}

main "$@"

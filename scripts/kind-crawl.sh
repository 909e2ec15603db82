# Leases a proxy from DISCOVERY with the token on standard input, requests TARGET
# through it, and releases the lease. Needs only a shell, sed and curl.
set -eu
read -r token
auth="Authorization: Bearer $token"
grant=$(curl -sS --fail-with-body -H "$auth" -H 'Content-Type: application/json' -d '{"wait":30,"ttlSeconds":60}' "$DISCOVERY/v1/leases")
field() { printf '%s' "$grant" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
status=$(curl -sS -o /dev/null -w '%{http_code}' -x "$(field proxyURL)" "$TARGET")
curl -sS --fail-with-body -X DELETE -H "$auth" "$DISCOVERY/v1/leases/$(field leaseID)"
echo "crawled $TARGET through a leased proxy: $status"
[ "$status" = 200 ]

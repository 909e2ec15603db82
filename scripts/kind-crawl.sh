# Leases a proxy of DISCOVERY with the token on standard input, gets TARGET through
# it, and gives it back. For a Pod that has a shell, curl and little else.
set -eu
read -r token
auth="Authorization: Bearer $token"
grant=$(curl -sS --fail-with-body -H "$auth" -H 'Content-Type: application/json' -d '{"wait":30,"ttlSeconds":60}' "$DISCOVERY/v1/leases")
field() { printf '%s' "$grant" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
status=$(curl -sS -o /dev/null -w '%{http_code}' -x "$(field proxyURL)" "$TARGET")
curl -sS --fail-with-body -X DELETE -H "$auth" "$DISCOVERY/v1/leases/$(field leaseID)"
echo "crawled $TARGET through a leased proxy: $status"
[ "$status" = 200 ]

#!/usr/bin/env bash
# Installs the programs that the tests need with apt-get, if they are missing and the
# user is root or has sudo without a password:
#   - a C compiler, for the race detector
#   - squid; without it the local stack runs its built-in proxy
#   - curl and jq, for the commands in the documents and of `make up`
#   - redis-server, for the tests of the shared lease store
#   - Python with HTTP libraries and Scrapy, Node and Chromium, for the tests of the
#     crawler clients
# Tests that need a missing program are skipped.
#
# "deps.sh node" also installs what a real node needs: containerd, runc, the network
# plugins and ip.
#
# PX_REQUIRE_SQUID=1 and PX_REQUIRE_REDIS=1 turn a missing program into an error.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

has_squid() { command -v squid >/dev/null; }
has_compiler() {
	command -v "${CC:-gcc}" >/dev/null &&
		echo '#include <stdlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1
}

# as_root runs a command as root, or fails.
as_root() {
	if ((EUID == 0)); then
		"$@"
	else
		sudo -n "$@"
	fi
}

can_install() {
	command -v apt-get >/dev/null && as_root true 2>/dev/null
}

# no_services prevents packages from starting their services until this script ends:
# Debian's squid would otherwise listen on port 3128 of all addresses.
no_services() {
	local policy=/usr/sbin/policy-rc.d
	[[ -e $policy ]] && return
	trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
	as_root chmod +x $policy
}

install_packages() {
	can_install || return 1
	echo "installing $*"
	no_services
	as_root apt-get -qq update &&
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@" >/dev/null
}

if ! has_compiler && ! install_packages gcc libc6-dev; then
	echo "The race detector needs a C compiler: run  apt-get install gcc libc6-dev  as root." >&2
	exit 1
fi

for program in curl jq; do
	command -v "$program" >/dev/null || install_packages "$program" ||
		echo "$program is not installed: run  apt-get install $program  as root. A test is skipped without it." >&2
done

has_node() {
	command -v containerd >/dev/null && command -v runc >/dev/null && command -v ip >/dev/null && [[ -e /usr/lib/cni/bridge ]]
}

# not_at_boot also prevents a package's service from starting at the next boot.
not_at_boot() {
	! command -v systemctl >/dev/null || as_root systemctl disable "$1" >/dev/null 2>&1 || true
}

has_redis() { command -v redis-server >/dev/null || command -v valkey-server >/dev/null; }
if [[ ${1:-} == node ]] && ! has_node && install_packages containerd runc containernetworking-plugins iproute2; then
	not_at_boot containerd
fi

if has_redis; then
	:
elif install_packages redis-server && has_redis; then
	not_at_boot redis-server
else
	echo "redis-server is not installed: run  apt-get install redis-server  as root. Tests are skipped without it." >&2
	[[ ${PX_REQUIRE_REDIS:-} != 1 ]] || exit 1
fi

# Tests that need one of these are skipped without it.
for want in python3:python3 node:nodejs npm:npm chromium:chromium chromedriver:chromium-driver; do
	command -v "${want%%:*}" >/dev/null || install_packages "${want##*:}" ||
		echo "${want%%:*} is not installed: run  apt-get install ${want##*:}  as root. A test is skipped without it." >&2
done
# Debian's Scrapy package works only with Debian's Python.
/usr/bin/python3 -c 'import scrapy' 2>/dev/null || python3 -c 'import scrapy' 2>/dev/null || install_packages python3-scrapy ||
	echo "Scrapy is not installed: run  apt-get install python3-scrapy  as root. A test is skipped without it." >&2

# The libraries whose errors the Python client judges, and what builds and checks its package.
/usr/bin/python3 -c 'import setuptools, wheel, pip, requests, urllib3, httpx, aiohttp, mypy' 2>/dev/null ||
	install_packages python3-requests python3-urllib3 python3-httpx python3-aiohttp python3-pip python3-setuptools python3-wheel mypy openssl ||
	echo "Python libraries are not installed: run  apt-get install python3-requests python3-httpx python3-aiohttp python3-pip python3-wheel mypy  as root. Tests are skipped without them." >&2

has_squid && exit
if install_packages squid && has_squid; then
	not_at_boot squid
	exit 0
fi
echo "squid is not installed: run  apt-get install squid  as root." >&2
[[ ${PX_REQUIRE_SQUID:-} != 1 ]] || exit 1
echo "The local stack uses its built-in proxy." >&2

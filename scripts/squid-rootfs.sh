#!/usr/bin/env bash
# Writes a tar file with a root file system for squid in a container: Debian's packages
# of squid, its libraries and a shell, without documentation and package data. It
# downloads them with apt-get and installs nothing.
set -euo pipefail

out=$(realpath -m "${1:?usage: squid-rootfs.sh FILE.tar}")
mkdir -p "$(dirname "$out")"
export PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

squid=$(command -v squid) || { echo "squid is not installed: the image's packages are derived from its libraries. Run  scripts/deps.sh" >&2; exit 1; }

# Finds the packages of the files that ldd lists. dpkg may know a file as /lib/...,
# since /lib is a link to /usr/lib.
files() {
	for program in "$squid" /bin/sh; do
		realpath "$program"
		ldd "$program" | awk '/=> \// { print $3 } /^\t\/lib/ { print $1 }' | xargs -r realpath
	done
}
owners() {
	local file
	while read -r file; do
		dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null || {
			echo "no package owns $file" >&2
			return 1
		}
	done | cut -d: -f1 | sort -u
}
packages=$(files | owners)

cd "$work"
mkdir debs root
# shellcheck disable=SC2086
(cd debs && apt-get -qq -o APT::Sandbox::User=root download $packages squid-common)
for deb in debs/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C root
done
rm -rf root/usr/share/{doc,man,locale,lintian,bug} root/etc/{init.d,cron*,logrotate.d,resolvconf,apparmor.d,ufw,NetworkManager}
find root/usr/share/squid* -path '*/errors/*' -mindepth 2 -not -path '*/errors/templates*' -not -path '*/errors/en*' -delete 2>/dev/null || true

mkdir -p root/etc root/tmp root/run
printf 'root:x:0:0::/:/bin/sh\nproxy:x:13:13::/:/bin/sh\n' >root/etc/passwd
printf 'root:x:0:\nproxy:x:13:\n' >root/etc/group
printf 'hosts: files dns\n' >root/etc/nsswitch.conf
ln -sfn dash root/bin/sh 2>/dev/null || true

tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C root -cf "$out" .

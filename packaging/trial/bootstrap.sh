#!/bin/sh
# bootstrap.sh SUITE ARCHIVE TO PACKAGES: a minimal Debian system in the new folder TO.
#
# It is made in memory, because its package manager waits for the disk after every file, and copied when it is whole. The
# caller has made the mount namespace.
set -eu
suite=$1 archive=$2 to=$3 packages=$4
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
debootstrap --variant=minbase --include="$packages" "$suite" /mnt/root "$archive"
rm -rf /mnt/root/var/cache/apt/archives/*.deb /mnt/root/var/lib/apt/lists/*
rm -rf "$to.new" "$to"
mkdir -p "$(dirname "$to")"
cp -a /mnt/root "$to.new"
mv "$to.new" "$to"

#!/bin/sh
# in-root.sh LOWERS UPPER DIST SCRIPT
#
# Runs SCRIPT of this folder in a root that shows the folders LOWERS and keeps changes in UPPER, or forgets them if UPPER
# is `-`. The folder DIST is /dist there, this one is /trial, the checkout is /repo. The caller has made the namespaces (unshare), so every mount
# ends with the last process.
set -eu
lowers=$1 upper=$2 dist=$3 script=$4
here=$(cd "$(dirname "$0")" && pwd)

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/root
if [ "$upper" = - ]; then
    upper=/mnt/upper work=/mnt/work
else
    work=$upper.work
fi
mkdir -p "$upper" "$work"
root=/mnt/root
mount -t overlay -o "lowerdir=$lowers,upperdir=$upper,workdir=$work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mkdir -p "$root/dev/shm" "$root/dist" "$root/trial" "$root/repo" "$root/out" "$root/before"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/out"
mount --bind -o ro "$dist" "$root/dist"
mount --bind -o ro "$here" "$root/trial"
mount --bind -o ro "$here/../.." "$root/repo"
ip link set lo up 2>/dev/null || true
# A changed root, and not chroot: the kernel gives no user namespace to a process that chroot has locked in.
cd "$root"
pivot_root . before
umount -l before
rmdir before
exec chroot . /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PACKAGES="${PACKAGES:-}" /bin/sh -eu "/trial/$script"

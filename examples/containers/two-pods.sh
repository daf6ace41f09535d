#!/bin/sh
# two-pods.sh [HIGHWIRE [PROGRAM ARGS…]]
#
# Two pods on two nodes, played on one machine: two network namespaces joined by a cable, each with its own /dev/shm,
# processes and host name, both of the same user. PROGRAM (ib_write_bw) serves in one, and its client in the other. Nobody
# needs to be root: a user namespace permits all of it.
set -eu

highwire=${1:-highwire}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ib_write_bw --iters 1000

if [ -z "${TWO_PODS_INSIDE:-}" ]; then
    exec unshare --user --map-root-user --mount --net --pid --fork --kill-child --mount-proc \
        env TWO_PODS_INSIDE=1 sh "$0" "$highwire" "$@"
fi

scratch=$(mktemp -d)
mount -t tmpfs tmpfs "$scratch"
trap 'umount -l "$scratch"; rmdir "$scratch"' EXIT

# wait_for WHAT COMMAND…: until COMMAND succeeds, a minute at most.
wait_for() {
    what=$1 tries=0
    shift
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || { echo "two-pods: $what does not come" >&2; exit 1; }
        sleep 0.05
    done
}

has_own_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
has_cable() { nsenter --target "$1" --net ip -oneline link show dev eth0 | grep -q LOWER_UP; }
# 18515 is the port on which programs of perftest exchange their addresses; 0A means that a socket listens.
listens() { cat "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null | grep -q ':4853 .* 0A '; }

# pod NAME FOLDER COMMAND…: becomes a pod, whose COMMAND begins when the file FOLDER/NAME.go appears.
pod() {
    exec unshare --net --ipc --uts --mount sh -euc '
        hostname "$1"
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        ip link set lo up
        until [ -e "$2/$1.go" ]; do sleep 0.05; done
        shift 2
        status=0
        "$@" || status=$?
        sed -n "s/^ *eth0: *\\([0-9]*\\) .*/the cable brought \\1 bytes/p" /proc/net/dev
        exit "$status"' pod "$@"
}

pod a "$scratch" "$highwire" run --address 10.64.0.1 -- "$@" >"$scratch/a.out" 2>&1 &
a=$!
pod b "$scratch" sh -euc 'exec "$@" 10.64.0.1' b "$highwire" run --address 10.64.0.2 -- "$@" >"$scratch/b.out" 2>&1 &
b=$!
wait_for "the network of pod a" has_own_network "$a"
wait_for "the network of pod b" has_own_network "$b"

ip link add cable-a type veth peer name cable-b
for pod in "a $a 10.64.0.1" "b $b 10.64.0.2"; do
    # shellcheck disable=SC2086 # three words
    set -- $pod
    ip link set "cable-$1" netns "$2"
    nsenter --target "$2" --net ip link set "cable-$1" name eth0
    nsenter --target "$2" --net ip address add "$3/24" dev eth0
    nsenter --target "$2" --net ip link set eth0 up
done
wait_for "the cable" has_cable "$a"
wait_for "the cable" has_cable "$b"

touch "$scratch/a.go"
wait_for "the server" listens "$a"
touch "$scratch/b.go"
status=0
wait "$b" || status=$?
wait "$a" || status=$?
echo "pod a:"
cat "$scratch/a.out"
echo "pod b:"
cat "$scratch/b.out"
exit "$status"

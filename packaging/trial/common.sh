# Parts of the trials. Each runs as root of a fresh minimal system without a network.

# A command of a user without any rights.
as_user() {
    setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user USER=user "$@"
}

fail() {
    echo "failed: $*"
    exit 1
}

# Every name of the system, with its kind, mode and owner. Not: what package managers keep for themselves, and the mounts.
list() {
    find / -xdev \( -path /proc -o -path /dev/shm -o -path /dist -o -path /trial -o -path /repo -o -path /sys -o -path /out -o -path /var/log \
        -o -path /var/cache -o -path '/var/lib/dpkg/*-old' -o -path '/var/lib/dpkg/lock*' -o -path /var/lib/apt \
        -o -path /var/lib/rpm -o -path /root/.rpmdb \) -prune -o -printf '%y %m %U %p\n' | sort
}

# begin: what the system is before anything is installed.
begin() {
    mkdir -p /home/user
    chown 1000:1000 /home/user
    list >/out/before
}

# end: what it is after everything was removed.
end() {
    list >/out/after
    diff /out/before /out/after || fail "something is left behind"
    shared=$(find /dev/shm -type f ! -name lock ! -name roster-1 ! -name net)
    [ -z "$shared" ] || fail "left in shared memory: $shared"
}

# measured WHO [COMMAND…]: two processes of perftest, run by COMMAND, of which one writes into the other's memory.
measured() {
    who=$1
    shift
    "$who" timeout 120 "$@" ib_write_bw --iters 1000 >/out/server 2>&1 &
    server=$!
    tries=0
    # The server listens on port 18515.
    until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] && kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    if ! "$who" timeout 120 "$@" ib_write_bw --iters 1000 127.0.0.1 >/out/client 2>&1; then
        cat /out/server /out/client
        fail "the client of ib_write_bw"
    fi
    finished=$(clock)
    wait "$server" || { cat /out/server; fail "the server of ib_write_bw"; }
    cat /out/client
    grep -q 'Device *: hw0' /out/client || fail "another device than Highwire's"
    grep -Eq '^ *65536 +1000 ' /out/client || fail "no thousand writes of 65536 bytes"
    # Owners of shared addresses end two seconds after the last process.
    tries=0
    while pgrep_highwire; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "a process of Highwire's does not end"
        sleep 0.05
    done
}

# finds_laboratory PROGRAM: the commands that it hands to the laboratory work.
finds_laboratory() {
    as_user "$1" sim list >/out/experiments || fail "no list of experiments"
    grep -q 'IRN Figure 1 ' /out/experiments || fail "the list has no first figure"
    as_user "$1" sim explain experiments/irn/fig01.toml >/out/explained || fail "no experiment is explained"
    as_user "$1" store check --help >/dev/null || fail "no checks of the store"
}

# finds_no_laboratory PROGRAM: it says where to get it.
finds_no_laboratory() {
    as_user "$1" sim list >/out/missing 2>&1 && fail "a laboratory that is not installed"
    grep -q 'the package highwire-lab' /out/missing || fail "it does not say where to get the laboratory"
}

# Whether a process of Highwire's lives.
pgrep_highwire() {
    for exe in /proc/[0-9]*/exe; do
        case $(readlink "$exe" 2>/dev/null) in
        */highwire) return 0 ;;
        esac
    done
    return 1
}

# clock: milliseconds, to tell how long a line took.
clock() {
    date +%s%3N
}

# took WHAT SINCE: how long it took until the client of the last measurement ended.
took() {
    echo "took: $1: $((finished - $2)) ms"
}

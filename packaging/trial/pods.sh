# Two pods on two nodes, by a user without rights.
. /trial/common.sh
begin
as_user tar -xzf "$(echo /dist/highwire-[0-9]*.tar.gz)" -C /home/user
program=$(echo /home/user/highwire-*/bin/highwire)
as_user timeout 300 sh /repo/examples/containers/two-pods.sh "$program" >/out/pods 2>&1 || {
    cat /out/pods
    fail "two pods"
}
cat /out/pods
# Each of them has written it.
[ "$(grep -Ec '^ *65536 +1000 ' /out/pods)" = 2 ] || fail "no thousand writes of 65536 bytes"
# A thousand writes went through the cable, and not through memory that both see.
sed -n 's/^the cable brought \([0-9]*\) bytes$/\1/p' /out/pods | sort -n | tail -1 >/out/bytes
[ "$(cat /out/bytes)" -ge 65536000 ] || fail "the cable brought $(cat /out/bytes) bytes only"
as_user rm -r "$(dirname "$(dirname "$program")")"
end

# The package for Fedora and its like, on Debian, whose C library rpm does not know: hence --nodeps.
. /trial/common.sh
begin
rpm -qpR --nosignature "$(echo /dist/*.rpm)" | grep -q '^glibc >= 2.28$' || fail "it does not say what it needs"
rpm -i --nodeps --nosignature "$(echo /dist/*.rpm)"
rpm -V --nodeps highwire || fail "files differ from the package's"
measured as_user highwire run --
rpm -e highwire
end

# The package for Fedora and its like, on Debian, whose C library rpm does not know: hence --nodeps.
. /trial/common.sh
begin
rpm -qpR --nosignature "$(echo /dist/highwire-[0-9]*.rpm)" | grep -q '^glibc >= 2.28$' || fail "it does not say what it needs"
rpm -i --nodeps --nosignature "$(echo /dist/highwire-[0-9]*.rpm)"
rpm -V --nodeps highwire || fail "files differ from the package's"
measured as_user highwire run --
finds_no_laboratory highwire
rpm -qpR --nosignature "$(echo /dist/highwire-lab-*.rpm)" | grep -q '^highwire = ' || fail "the laboratory does not need the product"
rpm -i --nodeps --nosignature "$(echo /dist/highwire-lab-*.rpm)"
rpm -V --nodeps highwire-lab || fail "the laboratory's files differ from the package's"
finds_laboratory highwire
rpm -e highwire-lab highwire
end

# The package for Debian.
. /trial/common.sh
begin
apt-get install -y -qq --no-install-recommends "$(echo /dist/highwire_*.deb)"
[ "$(command -v highwire)" = /usr/bin/highwire ] || fail "no program"
measured as_user highwire run --
finds_no_laboratory highwire
apt-get install -y -qq --no-install-recommends "$(echo /dist/highwire-lab_*.deb)"
finds_laboratory highwire
# The laboratory needs the product, so it goes first.
apt-get purge -y -qq highwire-lab highwire
end

# The package for Debian.
. /trial/common.sh
begin
apt-get install -y -qq --no-install-recommends "$(echo /dist/*.deb)"
[ "$(command -v highwire)" = /usr/bin/highwire ] || fail "no program"
measured as_user highwire run --
apt-get purge -y -qq highwire
end

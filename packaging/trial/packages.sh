# Adds Debian's packages to the system, for the trials that need more than the minimal one.
apt-get -qq update
# shellcheck disable=SC2086 # a list
apt-get install -y -qq --no-install-recommends $PACKAGES
apt-get clean

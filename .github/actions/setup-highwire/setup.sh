#!/bin/sh
# setup.sh ARCHIVE
#
# What the action `setup-highwire` does: unpacks the archive of a release and lets every later step of the job see the device.
# A step reads the lines of the files GITHUB_PATH and GITHUB_ENV.
set -eu

archive=${1:?usage: setup.sh ARCHIVE}
: "${GITHUB_PATH:?is set in a job of GitHub}" "${GITHUB_ENV:?is set in a job of GitHub}"
[ -f "$archive" ] || { echo "setup-highwire: there is no archive $archive" >&2; exit 1; }

place=${RUNNER_TOOL_CACHE:-$HOME/.cache}/highwire
rm -rf "$place.new"
mkdir -p "$place.new"
tar -xzf "$archive" -C "$place.new" --strip-components=1
rm -rf "$place"
mv "$place.new" "$place"

"$place/bin/highwire" --version
echo "$place/bin" >>"$GITHUB_PATH"
# `highwire env` writes `export NAME=VALUE` for a shell; a shell tells what comes out.
before=$(mktemp)
after=$(mktemp)
env -0 | sort -z >"$before"
(
    settings=$("$place/bin/highwire" env)
    eval "$settings"
    env -0 | sort -z
) >"$after"
comm -z -13 "$before" "$after" | tr '\0' '\n' | grep -v '^_=' >>"$GITHUB_ENV"
rm -f "$before" "$after"

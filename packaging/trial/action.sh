# The action for GitHub: its script, and what a job does with the two files that it writes.
. /trial/common.sh
begin
as_user mkdir /home/user/job
as_user env GITHUB_PATH=/home/user/job/path GITHUB_ENV=/home/user/job/env RUNNER_TOOL_CACHE=/home/user/tools \
    sh /repo/.github/actions/setup-highwire/setup.sh "$(echo /dist/highwire-[0-9]*.tar.gz)"
cat /home/user/job/path /home/user/job/env

# step COMMAND…: a later step of the job, a process that has nothing from the first but the files.
step() {
    # shellcheck disable=SC2046 # no value has a blank
    as_user env PATH="$(paste -s -d: /home/user/job/path):$PATH" $(cat /home/user/job/env) "$@"
}
measured step
step highwire --version
as_user env GITHUB_PATH=/home/user/job/path GITHUB_ENV=/home/user/job/env sh /repo/.github/actions/setup-highwire/setup.sh /none 2>/out/refused &&
    fail "an archive that does not exist is taken"
grep -q 'there is no archive /none' /out/refused || fail "it does not say what is missing"
as_user rm -r /home/user/job /home/user/tools
end

# The archive, by a user without rights.
. /trial/common.sh
begin
since=$(clock)
as_user tar -xzf "$(echo /dist/*.tar.gz)" -C /home/user
program=$(echo /home/user/highwire-*/bin/highwire)
measured as_user "$program" run --
took "the archive, unpacked by a user without rights, to the end of ib_write_bw" "$since"
as_user "$program" --version
as_user rm -r "$(dirname "$(dirname "$program")")"
end

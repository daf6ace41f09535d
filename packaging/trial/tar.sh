# The archive, by a user without rights.
. /trial/common.sh
begin
since=$(clock)
as_user tar -xzf "$(echo /dist/highwire-[0-9]*.tar.gz)" -C /home/user
program=$(echo /home/user/highwire-*/bin/highwire)
measured as_user "$program" run --
took "the archive, unpacked by a user without rights, to the end of ib_write_bw" "$since"
as_user "$program" --version
finds_no_laboratory "$program"
as_user tar -xzf "$(echo /dist/highwire-lab-*.tar.gz)" -C /home/user
finds_laboratory "$program"
# The program alone has the libraries in itself.
as_user mkdir /home/user/alone
as_user cp "$program" /home/user/alone/highwire
measured as_user /home/user/alone/highwire run --
[ -n "$(find /home/user/.cache/highwire -name libibverbs.so.1)" ] || fail "nothing was unpacked"
as_user rm -r /home/user/alone /home/user/.cache
as_user rm -r "$(dirname "$(dirname "$program")")"
end

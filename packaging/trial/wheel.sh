# The wheel, by a user without rights, in an environment of its own.
. /trial/common.sh
begin
as_user python3 -m venv /home/user/env
as_user find /home/user/env ! -path '*/__pycache__*' | sort >/out/env.before
since=$(clock)
as_user /home/user/env/bin/pip install --quiet --no-index --disable-pip-version-check "$(echo /dist/*.whl)"
measured as_user /home/user/env/bin/highwire run --
took "the wheel, installed by a user without rights, to the end of ib_write_bw" "$since"
measured as_user /home/user/env/bin/python -m highwire run --
# One libibverbs in the process, under its own name.
as_user /home/user/env/bin/highwire run -- sh -c 'LD_PRELOAD= LD_LIBRARY_PATH= ; grep libibverbs /proc/$$/maps' >/out/maps
[ "$(sed 's/.* //' /out/maps | sort -u)" = "$(echo /home/user/env/lib/python3*/site-packages/highwire/lib/highwire/libibverbs.so.1)" ] ||
    fail "not one libibverbs: $(cat /out/maps)"
as_user /home/user/env/bin/pip uninstall --quiet --yes --disable-pip-version-check highwire
as_user find /home/user/env ! -path '*/__pycache__*' | sort >/out/env.after
diff /out/env.before /out/env.after || fail "something is left in the environment"
as_user rm -r /home/user/env
# pip looks for settings and caches of its own.
rm -rf /home/user/.cache
end

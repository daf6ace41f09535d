"""What docs/store.md promises of the Redis door, asked by redis-py: python3 conformance.py PORT [PORT …], one port for each node."""

import sys
import threading

import redis

MIB = 1 << 20


def client(port, **more):
    return redis.Redis(host="127.0.0.1", port=port, socket_timeout=60, **more)


def fails(code, call):
    try:
        result = call()
    except redis.exceptions.RedisError as error:
        # redis-py takes the first word of some errors away.
        assert code in str(error) or code in type(error).__name__, error
    else:
        raise AssertionError(f"no error, but {result!r}")


def strings(a, b):
    assert a.set("s", "one") and b.get("s") == b"one"
    assert a.set("s", b"\x00\r\n\xff") and b.get("s") == b"\x00\r\n\xff"
    assert a.get("none") is None
    assert a.set("s", "x", nx=True) is None and b.set("other", "y", xx=True) is None
    assert a.set("s", "two", xx=True) and a.set("fresh", "1", nx=True)
    assert a.set("s", "three", get=True) == b"two"
    assert a.setnx("s", "x") is False or a.setnx("s", "x") == 0
    assert a.getset("s", "four") == b"three" and a.getdel("s") == b"four" and a.get("s") is None
    assert a.append("s", "ab") == 2 and b.append("s", "cd") == 4 and a.strlen("s") == 4
    assert a.mset({"m1": 1, "m2": 2}) and b.mget("m1", "none", "m2") == [b"1", None, b"2"]
    assert not a.msetnx({"m1": 9, "m3": 9}) and a.get("m3") is None
    assert a.incr("n") == 1 and b.incrby("n", 41) == 42 and a.decr("n") == 41 and a.decrby("n", 1) == 40
    fails("not an integer", lambda: a.incr("s"))
    a.set("n", 2**63 - 1)
    fails("overflow", lambda: a.incr("n"))
    assert a.exists("s", "s", "none") == 2 and a.delete("s", "none") == 1 and a.exists("s") == 0
    assert a.set("s", "x", ex=1000) and 0 < b.ttl("s") <= 1000 and b.persist("s") and a.ttl("s") == -1
    assert b.expire("s", 0) and a.get("s") is None
    fails("at most 1048576", lambda: a.set("s", "x" * (MIB + 1)))
    assert a.get("s") is None
    assert a.ttl("n") == -1 and a.ttl("none") == -2


def hashes(a, b):
    assert a.hset("h", mapping={"f": 1, "g": "two"}) == 2 and b.hset("h", "f", 3) == 0
    assert b.hget("h", "f") == b"3" and a.hget("h", "none") is None
    assert a.hgetall("h") == {b"f": b"3", b"g": b"two"} and a.hmget("h", "g", "x") == [b"two", None]
    assert a.hlen("h") == 2 and a.hexists("h", "f") and set(a.hkeys("h")) == {b"f", b"g"}
    assert a.hincrby("h", "f", 4) == 7 and a.hsetnx("h", "f", 1) == 0 and set(a.hvals("h")) == {b"7", b"two"}
    fails("WRONGTYPE", lambda: a.get("h"))
    fails("WRONGTYPE", lambda: a.hget("n", "f"))
    assert a.type("h") == b"hash" and a.type("n") == b"string" and a.type("none") == b"none"
    assert a.hdel("h", "f", "none") == 1 and a.hdel("h", "g") == 1 and a.exists("h") == 0
    fails("at most 1048576", lambda: a.hset("h", "f", "x" * MIB))
    assert a.exists("h") == 0


def long_values(a, b):
    """Values of a MiB, at two nodes."""
    longest = bytes(at * at % 251 for at in range(MIB))
    assert a.set("l", longest) and b.get("l") == longest and b.strlen("l") == MIB
    assert b.set("l2", longest[:5000]) and a.mget("l", "none", "l2") == [longest, None, longest[:5000]]
    fails("at most 1048576", lambda: a.append("l", "x"))
    assert a.append("l2", longest[5000:]) == MIB and b.get("l2") == longest
    assert a.set("l", "short", get=True) == longest and b.get("l") == b"short" and b.strlen("l") == 5
    assert a.getset("l", longest) == b"short" and b.getdel("l") == longest and b.exists("l") == 0
    fails("the transaction writes", lambda: a.mset({f"much{i}": longest for i in range(9)}))
    assert a.mset({f"l{i}": longest[i:] for i in range(7)}) and b.get("l6") == longest[6:]
    assert set(a.keys("l*")) == {f"l{i}".encode() for i in range(7)} and a.keys("much*") == []
    # A field's length needs more than two bytes.
    fields = {"big": longest[:500_000], "65535": b"y" * 65_535, "small": b"z"}
    assert a.hset("lh", mapping=fields) == 3 and b.hget("lh", "big") == longest[:500_000]
    assert b.hgetall("lh") == {name.encode(): value for name, value in fields.items()}
    assert a.hstrlen("lh", "65535") == 65_535 and a.hincrby("lh", "n", 4) == 4 and b.hdel("lh", "big") == 1
    assert a.hlen("lh") == 3 and a.type("lh") == b"hash"
    fails("WRONGTYPE", lambda: a.strlen("lh"))
    pipe = a.pipeline()
    pipe.watch("l0")
    b.append("l1", "")
    b.set("l0", longest)
    pipe.multi()
    pipe.set("l0", "lost")
    fails("WatchError", pipe.execute)
    assert a.get("l0") == longest
    assert b.delete("lh", *(f"l{i}" for i in range(7))) == 8 and a.keys("l*") == []


def keys(a, b):
    for i in range(300):
        a.set(f"scan:{i}", i)
    expected = {f"scan:{i}".encode() for i in range(300)}
    seen = list(b.scan_iter(match="scan:*"))
    assert len(seen) == 300 and set(seen) == expected
    assert set(a.keys("scan:*")) == expected and b"m1" in a.keys("*")
    assert a.dbsize() == len(a.keys("*"))
    assert a.delete(*expected) == 300
    assert a.set("e", "v", ex=1000) and 990 < b.ttl("e") <= 1000 and b.persist("e") and a.ttl("e") == -1
    assert a.expire("e", 500, nx=True) and not b.expire("e", 400, gt=True) and b.getex("e", ex=9000) == b"v"
    assert a.rename("e", "f") and 8000 < b.ttl("f") <= 9000 and b.copy("f", "g") and a.touch("e", "f", "g") == 2
    assert b.randomkey() is not None and a.delete("f", "g") == 2


def transactions(a, b):
    pipe = a.pipeline()
    pipe.set("t", 1).incr("t").get("t").get("s")
    assert pipe.execute() == [True, 2, b"2", None]

    # What was watched has changed: nothing happens.
    pipe = a.pipeline()
    pipe.watch("t", "nothing")
    b.set("t", 5)
    pipe.multi()
    pipe.set("t", 9)
    fails("WatchError", pipe.execute)
    assert a.get("t") == b"5"
    # A key that was absent counts as well.
    pipe = a.pipeline()
    pipe.watch("nothing")
    b.set("nothing", 1)
    pipe.multi()
    pipe.set("t", 9)
    fails("WatchError", pipe.execute)
    # It has not changed, or is not watched any more.
    pipe = a.pipeline()
    pipe.watch("t")
    b.set("unrelated", 1)
    pipe.multi()
    pipe.set("t", 6)
    assert pipe.execute() == [True] and b.get("t") == b"6"
    pipe = a.pipeline()
    pipe.watch("t")
    b.set("t", 7)
    pipe.unwatch()
    pipe.multi()
    pipe.get("t")
    assert pipe.execute() == [b"7"]

    # An error of one command is its own; a command that is not promised spoils the transaction.
    pipe = a.pipeline()
    pipe.set("t", "word").incr("t").get("t")
    result = pipe.execute(raise_on_error=False)
    assert result[0] is True and "not an integer" in str(result[1]) and result[2] == b"word"
    raw = a.connection_pool.get_connection("MULTI")

    def say(*words):
        raw.send_command(*words)
        return raw.read_response()

    assert say("MULTI") == b"OK" and say("SET", "t", "1") == b"QUEUED"
    fails("not promised", lambda: say("GEODIST", "g", "a", "b"))
    fails("previous errors", lambda: say("EXEC"))
    assert a.get("t") == b"word"
    assert say("MULTI") == b"OK" and say("SET", "t", "1") == b"QUEUED" and say("DISCARD") == b"OK"
    fails("EXEC without MULTI", lambda: say("EXEC"))
    fails("DISCARD without MULTI", lambda: say("DISCARD"))
    assert a.get("t") == b"word"
    a.connection_pool.release(raw)


def counters(ports):
    """Threads at all nodes add with WATCH, and with INCR: every addition counts."""

    def watchers(port):
        mine = client(port)
        for _ in range(20):
            mine.transaction(add, "watched")
            mine.incr("incremented")

    def add(pipe):
        there = int(pipe.get("watched") or 0)
        pipe.multi()
        pipe.set("watched", there + 1)

    threads = [threading.Thread(target=watchers, args=(port,)) for port in ports * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = client(ports[0])
    assert first.get("watched") == first.get("incremented") == str(40 * len(ports)).encode()


def server(a):
    assert a.ping() and a.echo("hello") == b"hello"
    assert a.info()["server_name"] == "highwire" and a.config_get("save") == {"save": ""}
    fails("out of range", lambda: a.execute_command("SELECT", 1))
    for words in [("XADD", "s", "*", "f", 1), ("GEODIST", "g", "a", "b"), ("SAVE",), ("SSUBSCRIBE", "c")]:
        fails("not promised", lambda: a.execute_command(*words))
    for words in [("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1"), ("SWAPDB", 0, 0)]:
        fails("is refused", lambda: a.execute_command(*words))
    assert a.command()["expire"]["flags"] == ["write", "fast"] and "lolwut" not in a.command()
    fails("wrong number of arguments", lambda: a.execute_command("GET"))


def main():
    ports = [int(port) for port in sys.argv[1:]]
    a, b = client(ports[0]), client(ports[-1])
    for part in (strings, hashes, long_values, keys, transactions):
        part(a, b)
        print(part.__name__, "as promised")
    counters(ports)
    server(a)
    print("counters and server as promised")


main()

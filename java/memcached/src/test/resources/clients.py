"""Foreign clients against a server: python3 clients.py HOST PORT"""
import sys
import time

import bmemcached
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

host, port = sys.argv[1], int(sys.argv[2])


def text(client):
    client.flush_all()
    assert client.get("k") is None
    assert client.set("k", b"v", noreply=False) is True
    assert client.get("k") == b"v"
    assert client.add("k", b"w", noreply=False) is False
    assert client.replace("k", b"\r\n\0 w", noreply=False) is True
    assert client.append("k", b"!", noreply=False) is True
    assert client.prepend("k", b"<", noreply=False) is True
    assert client.get("k") == b"<\r\n\0 w!"
    value, cas = client.gets("k")
    assert client.cas("k", b"x", cas, noreply=False) is True
    assert client.cas("k", b"y", cas, noreply=False) is False
    assert client.cas("nobody", b"y", cas, noreply=False) is None
    assert client.set_many({f"m{i}": str(i).encode() for i in range(300)}, noreply=False) == []
    assert client.get_many([f"m{i}" for i in range(301)]) == {f"m{i}": str(i).encode() for i in range(300)}
    assert client.delete("m0", noreply=False) is True
    assert client.delete("m0", noreply=False) is False
    assert client.incr("m7", 5, noreply=False) == 12
    assert client.decr("m7", 50, noreply=False) == 0
    assert client.incr("nobody", 1, noreply=False) is None
    try:
        client.incr("k", 1, noreply=False)
        raise AssertionError("a number was made of x")
    except MemcacheClientError:
        pass
    assert client.touch("k", 1, noreply=False) is True
    assert client.touch("nobody", 1, noreply=False) is False
    client.set("soon", b"gone", expire=1, noreply=False)
    client.set("past", b"gone", expire=-1, noreply=False)
    assert client.get("past") is None
    deadline = time.time() + 60
    while client.get("soon") is not None or client.get("k") is not None:
        assert time.time() < deadline, "what expires does so"
        time.sleep(0.05)
    large = bytes(range(256)) * 4000
    assert client.set("large", large, noreply=False) is True
    assert client.get("large") == large
    try:
        client.set("large", large * 2, noreply=False)
        raise AssertionError("two megabytes were taken")
    except MemcacheServerError:
        pass
    assert client.get("large") is None, "an old value behind one that was refused"
    stats = client.stats()
    assert int(stats[b"curr_items"]) > 250 and int(stats[b"get_hits"]) > 0, stats
    assert client.version()


def binary(client):
    assert client.flush_all()
    assert client.get("k") is None
    assert client.set("k", "v")
    assert client.get("k") == "v"
    assert not client.add("k", "w")
    assert client.replace("k", b"bytes")
    value, cas = client.gets("k")
    assert value == b"bytes"
    assert client.cas("k", "x", cas)
    assert not client.cas("k", "y", cas)
    assert not client.set_multi({f"m{i}": str(i) for i in range(300)})
    assert client.get_multi([f"m{i}" for i in range(301)]) == {f"m{i}": str(i) for i in range(300)}
    assert client.delete("m0") and client.get("m0") is None
    assert client.delete_multi(["m1", "m2"]) and client.get("m1") is None
    assert client.incr("n", 5, default=7) == 7
    assert client.incr("n", 5) == 12
    assert client.decr("n", 50) == 0
    client.set("soon", "gone", time=1)
    deadline = time.time() + 60
    while client.get("soon") is not None:
        assert time.time() < deadline, "what expires does so"
        time.sleep(0.05)
    large = bytes(range(256)) * 4000
    assert client.set("large", large, compress_level=0)
    assert client.get("large") == large
    stats = list(client.stats().values())[0]
    assert int(stats["curr_items"]) > 250, stats


text(Client((host, port), timeout=60))
text(PooledClient((host, port), timeout=60))
binary(bmemcached.Client((f"{host}:{port}",), socket_timeout=60))
print("all conversations were as expected")

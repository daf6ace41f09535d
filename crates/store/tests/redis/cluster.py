"""What docs/store-redis.md promises clients of clusters, asked by redis-py: python3 cluster.py PORT [PORT ...]. Prints how many keys it has read."""

import sys

from redis.cluster import RedisCluster

COUNT = 200


def main(ports):
    cluster = RedisCluster(host="127.0.0.1", port=ports[0], socket_timeout=60)
    assert sorted(node.port for node in cluster.get_nodes()) == sorted(ports)
    for i in range(COUNT):
        while not cluster.set(f"key:{i}", i):
            pass
    owners = {cluster.get_node_from_key(f"key:{i}").port for i in range(COUNT)}
    assert owners == set(ports), owners
    for i in range(COUNT):
        assert cluster.get(f"key:{i}") == str(i).encode()
    # Keys with one tag have one node.
    assert cluster.mset({"{t}a": 1, "{t}b": 2}) and cluster.mget("{t}a", "{t}b") == [b"1", b"2"]
    assert cluster.keyslot("{t}a") == cluster.cluster_keyslot("t")
    assert cluster.incr("n") == 1 and cluster.hset("h", "f", 1) == 1 and cluster.delete("n", "h") == 2
    assert cluster.dbsize(target_nodes=RedisCluster.DEFAULT_NODE) == COUNT + 2
    print(COUNT)


main([int(port) for port in sys.argv[1:]])

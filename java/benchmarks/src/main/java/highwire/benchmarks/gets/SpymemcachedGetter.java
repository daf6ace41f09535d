package highwire.benchmarks.gets;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.MemcachedClient;

/** spymemcached, which the paper measures, with the binary protocol. */
final class SpymemcachedGetter implements Getter {
    private final MemcachedClient client;

    SpymemcachedGetter(InetSocketAddress server) throws IOException {
        client = new MemcachedClient(new BinaryConnectionFactory() {
            @Override
            public long getOperationTimeout() {
                return 30_000;
            }
        }, List.of(server));
    }

    /** Its transcoder takes values stored without flags for text. */
    @Override
    public byte[] get(String key) {
        Object value = client.get(key);
        return value == null ? null : Gets.bytes((String) value);
    }

    @Override
    public void close() {
        client.shutdown(5, TimeUnit.SECONDS);
    }
}

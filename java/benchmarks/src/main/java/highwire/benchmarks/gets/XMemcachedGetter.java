package highwire.benchmarks.gets;

import java.io.IOException;
import java.net.InetSocketAddress;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClient;

/** xmemcached as it comes, with the text protocol. */
final class XMemcachedGetter implements Getter {
    private final MemcachedClient client;

    XMemcachedGetter(InetSocketAddress server) throws IOException {
        client = new XMemcachedClient(server);
        client.setOpTimeout(30_000);
    }

    /** Its transcoder takes values stored without flags for text. */
    @Override
    public byte[] get(String key) throws Exception {
        String value = client.get(key);
        return value == null ? null : Gets.bytes(value);
    }

    @Override
    public void close() throws IOException {
        client.shutdown();
    }
}

package highwire.benchmarks.gets;

import highwire.memcached.MemcachedClient;
import highwire.memcached.Value;
import highwire.verbs.Context;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;

/** Highwire's client: one-sided READs of the server's memory. */
final class ReadGetter implements Getter {
    private final Context context = Context.open();
    private final MemcachedClient client;

    ReadGetter(InetSocketAddress server) throws IOException {
        client = MemcachedClient.connect(context, server, Duration.ofSeconds(30));
    }

    @Override
    public byte[] get(String key) throws IOException {
        Value value = client.get(key);
        return value == null ? null : value.bytes();
    }

    @Override
    public void close() throws IOException {
        client.close();
        context.close();
    }
}

package highwire.memcached;

import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import highwire.rpc.RpcClient;
import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.IdleStrategy;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.OptionalLong;

/**
 * A client of a {@link MemcachedServer}: it gets values by READs of the server's memory, which the server
 * does not notice, and makes changes by calls of jvRPC. One thread at a time.
 *
 * <p>Keys have 1 to 250 bytes without blanks and controls. Times are as in the protocol: seconds from now up to a month, else since 1970, 0 for ever.
 */
public final class MemcachedClient implements AutoCloseable {
    private static final int SPINS = 1 << 12;

    private final Line line;
    private final Duration timeout;
    private final int itemBytes;
    /** The difference between the server's clock and this one. */
    private final long ahead;
    private final RpcClient calls;
    final Lookups lookups;
    private long asked;

    private MemcachedClient(Context context, InetSocketAddress server, Duration timeout, IdleStrategy idle) throws IOException {
        this.timeout = timeout;
        Lookups made = null;
        RpcClient called = null;
        line = new Line(server, timeout);
        try {
            made = new Lookups(context, StoreOptions.DEFAULT.itemBytes(), idle);
            // Read before the server reads its own: a value that has expired there has expired here.
            long before = System.currentTimeMillis();
            String answer = line.ask(Session.bytes("rdma " + made.endpoint()), null);
            String[] words = answer.split(" ");
            if (words.length != 10 || !words[0].equals("RDMA") || !words[1].equals("2")) {
                throw new MemcachedException("the server answers `" + answer + "`: it has no memory that could be READ");
            }
            Lookups.Layout layout = new Lookups.Layout(Long.parseLong(words[3]), Integer.parseUnsignedInt(words[4]),
                    Integer.parseInt(words[5]), Long.parseLong(words[6]), Integer.parseInt(words[7]));
            itemBytes = layout.itemBytes();
            ahead = Long.parseLong(words[8]) - before;
            made.connect(Endpoint.parse(words[2]), layout, timeout);
            called = RpcClient.connect(context, new InetSocketAddress(server.getAddress(), Integer.parseInt(words[9])), timeout);
        } catch (IOException | IllegalArgumentException e) {
            line.close();
            if (called != null) {
                called.close();
            }
            if (made != null) {
                made.close();
            }
            throw e instanceof IOException known ? known : new MemcachedException("the server answers nonsense: " + e.getMessage(), e);
        }
        lookups = made;
        calls = called;
    }

    /**
     * Connects to a server.
     *
     * @param context the engine to use; stays open
     * @param server where it listens for TCP
     * @param timeout how long to wait for each of its answers
     * @return the client
     * @throws IOException there is none, or it serves TCP alone
     */
    public static MemcachedClient connect(Context context, InetSocketAddress server, Duration timeout) throws IOException {
        return connect(context, server, timeout, IdleStrategy.spinning(SPINS));
    }

    /**
     * Connects to a server, with a thread that waits in its own way.
     *
     * @param context the engine to use; stays open
     * @param server where it listens for TCP
     * @param timeout how long to wait for each of its answers
     * @param idle how long the thread looks for what it READs before others may run
     * @return the client
     * @throws IOException there is none, or it serves TCP alone
     */
    public static MemcachedClient connect(Context context, InetSocketAddress server, Duration timeout, IdleStrategy idle) throws IOException {
        return new MemcachedClient(context, server, timeout, idle);
    }

    /**
     * Gets a value, by READ.
     *
     * @param key the key
     * @return the value; null if there is none
     * @throws MemcachedException the server has gone
     */
    public Value get(String key) throws MemcachedException {
        return get(bytes(key));
    }

    /**
     * Gets a value, by READ.
     *
     * @param key the key
     * @return the value; null if there is none
     * @throws MemcachedException the server has gone
     */
    public Value get(byte[] key) throws MemcachedException {
        return multiGet(key)[0];
    }

    /**
     * Gets values, with the READs of sixteen keys on their way at a time.
     *
     * @param keys the keys
     * @return their values, null where there is none
     * @throws MemcachedException the server has gone
     */
    public Value[] multiGet(byte[]... keys) throws MemcachedException {
        for (byte[] key : keys) {
            check(key);
        }
        Value[] values = new Value[keys.length];
        for (int first = 0; first < keys.length; first += Lookups.WIDTH) {
            int count = Math.min(Lookups.WIDTH, keys.length - first);
            lookups.find(keys, first, count);
            long now = System.currentTimeMillis() + ahead;
            for (int i = 0; i < count; i++) {
                values[first + i] = switch (lookups.end(i)) {
                    case FOUND -> lookups.value(i, now);
                    case ABSENT -> null;
                    case UNKNOWN -> ask(keys[first + i]);
                };
            }
        }
        return values;
    }

    /**
     * Gets a value from the server itself: if the index had no room for the key, or others write it all the
     * time.
     */
    private Value ask(byte[] key) throws MemcachedException {
        asked++;
        return line.get(key);
    }

    /**
     * Stores a value.
     *
     * @param key the key
     * @param flags come back with the value
     * @param seconds how long it stays
     * @param value the value
     * @throws IOException it is too large, there is no memory, or the server has gone
     */
    public void set(String key, int flags, long seconds, byte[] value) throws IOException {
        expect(store(Mode.SET, bytes(key), flags, seconds, value, 0), Outcome.STORED);
    }

    /**
     * As {@link #set}, if the key has no value.
     *
     * @param key the key
     * @param flags come back with the value
     * @param seconds how long it stays
     * @param value the value
     * @return whether it was stored
     * @throws IOException the server has gone, or refuses
     */
    public boolean add(String key, int flags, long seconds, byte[] value) throws IOException {
        return expect(store(Mode.ADD, bytes(key), flags, seconds, value, 0), Outcome.STORED, Outcome.NOT_STORED);
    }

    /**
     * As {@link #set}, if the key has a value.
     *
     * @param key the key
     * @param flags come back with the value
     * @param seconds how long it stays
     * @param value the value
     * @return whether it was stored
     * @throws IOException the server has gone, or refuses
     */
    public boolean replace(String key, int flags, long seconds, byte[] value) throws IOException {
        return expect(store(Mode.REPLACE, bytes(key), flags, seconds, value, 0), Outcome.STORED, Outcome.NOT_STORED);
    }

    /**
     * Puts bytes behind a value.
     *
     * @param key the key
     * @param value the bytes
     * @return whether there was one
     * @throws IOException the server has gone, or refuses
     */
    public boolean append(String key, byte[] value) throws IOException {
        return expect(store(Mode.APPEND, bytes(key), 0, 0, value, 0), Outcome.STORED, Outcome.NOT_STORED);
    }

    /**
     * Puts bytes before a value.
     *
     * @param key the key
     * @param value the bytes
     * @return whether there was one
     * @throws IOException the server has gone, or refuses
     */
    public boolean prepend(String key, byte[] value) throws IOException {
        return expect(store(Mode.PREPEND, bytes(key), 0, 0, value, 0), Outcome.STORED, Outcome.NOT_STORED);
    }

    /**
     * As {@link #set}, if the value still has this unique number.
     *
     * @param key the key
     * @param flags come back with the value
     * @param seconds how long it stays
     * @param value the value
     * @param cas the unique number that the value must have
     * @return whether it was stored
     * @throws IOException the server has gone, or refuses
     */
    public boolean cas(String key, int flags, long seconds, byte[] value, long cas) throws IOException {
        if (cas == 0) {
            throw new IllegalArgumentException("no value has the unique number 0");
        }
        return expect(store(Mode.SET, bytes(key), flags, seconds, value, cas), Outcome.STORED, Outcome.EXISTS, Outcome.NOT_FOUND);
    }

    /**
     * Deletes a value.
     *
     * @param key the key
     * @return whether there was one
     * @throws IOException the server has gone, or refuses
     */
    public boolean delete(String key) throws IOException {
        return expect(call(StoreService.DELETE, bytes(key), 0, 0, 0, new byte[0]).outcome(), Outcome.STORED, Outcome.NOT_FOUND);
    }

    /**
     * Changes how long a value stays.
     *
     * @param key the key
     * @param seconds how long it stays
     * @return whether there was one
     * @throws IOException the server has gone, or refuses
     */
    public boolean touch(String key, long seconds) throws IOException {
        return expect(call(StoreService.TOUCH, bytes(key), seconds, 0, 0, new byte[0]).outcome(), Outcome.STORED, Outcome.NOT_FOUND);
    }

    /**
     * Adds to a decimal number, modulo 2⁶⁴.
     *
     * @param key the key
     * @param delta how much
     * @return the sum, or nothing if there is no value
     * @throws IOException the server has gone, or refuses
     */
    public OptionalLong increment(String key, long delta) throws IOException {
        return sum(call(StoreService.INCREMENT, bytes(key), 0, delta, 0, new byte[0]));
    }

    /**
     * Subtracts from a decimal number, down to 0.
     *
     * @param key the key
     * @param delta how much
     * @return the difference, or nothing if there is no value
     * @throws IOException the server has gone, or refuses
     */
    public OptionalLong decrement(String key, long delta) throws IOException {
        return sum(call(StoreService.DECREMENT, bytes(key), 0, delta, 0, new byte[0]));
    }

    private static OptionalLong sum(Sum sum) throws MemcachedException {
        boolean isThere = expect(sum.outcome(), Outcome.STORED, Outcome.NOT_FOUND);
        return isThere ? OptionalLong.of(sum.value()) : OptionalLong.empty();
    }

    /**
     * Deletes all values: now, or this many seconds from now.
     *
     * @param seconds how long it takes until then; 0 for now
     * @throws IOException the server has gone, or refuses
     */
    public void flushAll(long seconds) throws IOException {
        call(StoreService.FLUSH, new byte[0], seconds, 0, 0, new byte[0]);
    }

    private Outcome store(Mode mode, byte[] key, int flags, long seconds, byte[] value, long cas) throws IOException {
        if (StoreService.HEADER + key.length + value.length <= calls.maxBytes()) {
            return call(mode.ordinal(), key, seconds, cas, flags, value).outcome();
        }
        if (Record.bytes(key.length, value.length) > itemBytes) {
            throw new MemcachedException("the server takes records of up to " + itemBytes + " bytes");
        }
        check(key);
        String verb = cas != 0 ? "cas" : mode.name().toLowerCase(java.util.Locale.ROOT);
        String behind = " " + Integer.toUnsignedString(flags) + " " + seconds + " " + value.length
                + (cas != 0 ? " " + Long.toUnsignedString(cas) : "");
        String answer = line.ask(Line.command(verb + " ", key, behind), value);
        return switch (answer) {
            case "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND" -> Outcome.valueOf(answer);
            case "SERVER_ERROR out of memory storing object" -> Outcome.NO_MEMORY;
            default -> throw new MemcachedException("the server answers `" + answer + "`");
        };
    }

    private Sum call(int method, byte[] key, long seconds, long number, int flags, byte[] value) throws IOException {
        if (method != StoreService.FLUSH) {
            check(key);
        }
        RpcCall call = calls.begin(method);
        try {
            int length = StoreService.write(call.arguments(), seconds, number, flags, key, value);
            length = call.send(length).await(timeout);
            return StoreService.answer(call.answer(length));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new MemcachedException("interrupted; whether the change was made is not known", e);
        }
    }

    private static boolean expect(Outcome outcome, Outcome... usual) throws MemcachedException {
        for (Outcome one : usual) {
            if (outcome == one) {
                return outcome == Outcome.STORED;
            }
        }
        throw new MemcachedException(TextProtocol.text(outcome));
    }

    private static byte[] bytes(String key) {
        return key.getBytes(StandardCharsets.UTF_8);
    }

    private static void check(byte[] key) {
        if (!Session.isKey(key)) {
            throw new IllegalArgumentException("a key has 1 to " + Store.KEY_MAX + " bytes, without blanks and controls");
        }
    }

    /** {@return READs so far} */
    public long reads() {
        return lookups.reads;
    }

    /** {@return READs that met a change and were repeated} */
    public long retries() {
        return lookups.retries;
    }

    /** {@return GETs for which the server was asked} */
    public long asked() {
        return asked;
    }

    @Override
    public void close() throws VerbsException {
        line.close();
        calls.close();
        lookups.close();
    }
}

package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import highwire.rpc.RpcService;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Changes that come by jvRPC.
 *
 * <pre>
 *  call    0 seconds i64 │ 8 number u64 │ 16 flags u32 │ 20 key length u32 │ 24 value length u32 │ 28 zero u32 │ 32 key, value
 *  answer  0 number u64 │ 8 outcome u32 │ 12 zero u32
 * </pre>
 *
 * <p>The number is the unique number that is expected (0: any), or what is added.
 */
final class StoreService implements RpcService {
    static final int HEADER = 32;
    static final int ANSWER = 16;
    /** Methods behind those that store, which have the numbers of {@link Mode}. */
    static final int DELETE = 16;
    static final int TOUCH = 17;
    static final int INCREMENT = 18;
    static final int DECREMENT = 19;
    static final int FLUSH = 20;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;

    private final Store store;

    StoreService(Store store) {
        this.store = store;
    }

    /** Writes a call; returns its length. */
    static int write(MemorySegment call, long seconds, long number, int flags, byte[] key, byte[] value) {
        call.set(LONG, 0, seconds);
        call.set(LONG, 8, number);
        call.set(INT, 16, flags);
        call.set(INT, 20, key.length);
        call.set(INT, 24, value.length);
        call.set(INT, 28, 0);
        MemorySegment.copy(MemorySegment.ofArray(key), 0, call, HEADER, key.length);
        MemorySegment.copy(MemorySegment.ofArray(value), 0, call, HEADER + key.length, value.length);
        return HEADER + key.length + value.length;
    }

    static Sum answer(MemorySegment answer) {
        return new Sum(Outcome.values()[answer.get(INT, 8)], answer.get(LONG, 0), null);
    }

    @Override
    public int serve(int method, MemorySegment arguments, int length, MemorySegment answer) {
        store.counters.count(Counter.rpc_calls);
        if (length < HEADER) {
            throw new IllegalArgumentException("a call of " + length + " bytes");
        }
        long seconds = arguments.get(LONG, 0);
        long number = arguments.get(LONG, 8);
        int flags = arguments.get(INT, 16);
        long keyLength = Integer.toUnsignedLong(arguments.get(INT, 20));
        long valueLength = Integer.toUnsignedLong(arguments.get(INT, 24));
        if (HEADER + keyLength + valueLength != length) {
            throw new IllegalArgumentException("a call whose lengths contradict each other");
        }
        byte[] key = arguments.asSlice(HEADER, keyLength).toArray(ValueLayout.JAVA_BYTE);
        byte[] value = arguments.asSlice(HEADER + keyLength, valueLength).toArray(ValueLayout.JAVA_BYTE);
        if (method != FLUSH && !Session.isKey(key)) {
            throw new IllegalArgumentException("a key has 1 to " + Store.KEY_MAX + " bytes, without blanks and controls");
        }
        Sum sum = serve(method, key, seconds, number, flags, value);
        answer.set(LONG, 0, sum.value());
        answer.set(INT, 8, sum.outcome().ordinal());
        answer.set(INT, 12, 0);
        return ANSWER;
    }

    private Sum serve(int method, byte[] key, long seconds, long number, int flags, byte[] value) {
        return switch (method) {
            case DELETE -> new Sum(store.delete(key, number == 0 ? null : (Long) number));
            case TOUCH -> new Sum(store.touch(key, store.expiry(seconds)).outcome());
            case INCREMENT, DECREMENT -> store.add(key, number, method == DECREMENT, 0);
            case FLUSH -> {
                store.flush(seconds == 0 ? store.now() : store.expiry(seconds));
                yield new Sum(Outcome.STORED);
            }
            default -> {
                if (method < 0 || method >= Mode.values().length) {
                    throw new IllegalArgumentException("there is no method " + method);
                }
                Mode mode = Mode.values()[method] == Mode.SET && number != 0 ? Mode.CAS : Mode.values()[method];
                yield new Sum(store.store(mode, key, flags, store.expiry(seconds), value, number).outcome());
            }
        };
    }
}

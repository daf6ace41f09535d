package highwire.memcached;

import highwire.memcached.Counters.Counter;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;

/**
 * The keys and their values, as the protocols change them. One lock is around everything; {@link Shelf} keeps the records.
 */
final class Store {
    static final int KEY_MAX = 250;
    private static final long MONTH_SECONDS = 60L * 60 * 24 * 30;
    /** The past, as an expiry. */
    private static final long LONG_AGO = 1;
    /** A longer value is no number, however it begins. */
    private static final int NUMBER_MAX = 1 << 19;

    /** How a value is stored. CAS stores if the item has the unique number that is expected. */
    enum Mode { SET, ADD, REPLACE, APPEND, PREPEND, CAS }

    /** The result of a change. */
    enum Outcome { STORED, NOT_STORED, EXISTS, NOT_FOUND, TOO_LARGE, NO_MEMORY, NOT_A_NUMBER }

    /** The result, and the item as it is then, expired or not; null if the change has stored none. */
    record Change(Outcome outcome, Item item) {
        Change(Outcome outcome) {
            this(outcome, null);
        }
    }

    final StoreOptions options;
    final Counters counters = new Counters();
    final Shelf shelf;
    private final LongSupplier clock;
    private long cas;
    private long flushAt;
    private boolean sweeps = true;

    /** Makes an empty store in memory that is at least as large as the options say; clock in milliseconds since 1970. */
    Store(StoreOptions options, MemorySegment memory, LongSupplier clock) {
        this.options = options;
        this.clock = clock;
        this.shelf = new Shelf(options, memory, counters);
    }

    long now() {
        return clock.getAsLong();
    }

    /** A time as the protocols give it: seconds from now up to a month, else since 1970; negative is the past. */
    long expiry(long seconds) {
        if (seconds == 0) {
            return 0;
        }
        if (seconds < 0) {
            return LONG_AGO;
        }
        return seconds <= MONTH_SECONDS ? now() + seconds * 1000 : seconds > Long.MAX_VALUE / 1000 ? 0 : seconds * 1000;
    }

    /** The item, without marking it as used; null if there is none. */
    synchronized Item peek(byte[] key) {
        long now = now();
        tick(now);
        Item item = shelf.find(key);
        if (item != null && item.isExpired(now)) {
            counters.count(Counter.reclaimed);
            shelf.unlink(item, now);
            return null;
        }
        return item;
    }

    /** A client has asked for the item's value. */
    synchronized void bump(Item item) {
        item.slab.touch(item);
        item.wasFetched = true;
        item.accessed = now();
    }

    /** An item for a client that asks for its value; counts. */
    synchronized Item get(byte[] key) {
        counters.count(Counter.cmd_get);
        Item item = peek(key);
        counters.count(item == null ? Counter.get_misses : Counter.get_hits);
        if (item != null) {
            bump(item);
        }
        return item;
    }

    synchronized byte[] value(Item item) {
        return shelf.value(item);
    }

    /** Runs what is due: a flush that was ordered for later, and pages that are to be given away. */
    synchronized void tick(long now) {
        if (flushAt != 0 && now >= flushAt) {
            flushAt = 0;
            shelf.clear(now);
        }
    }

    /** Gives spare memory back for others; for the thread that serves, now and then. */
    synchronized void sweep() {
        if (sweeps) {
            shelf.sweep(now());
        }
    }

    /** Whether {@link #sweep} does something. */
    synchronized void sweeps(boolean value) {
        sweeps = value;
    }

    synchronized boolean sweeps() {
        return sweeps;
    }

    /** Moves a page from one class of chunks to another. */
    synchronized Shelf.Move reassign(int from, int to) {
        return shelf.reassign(from, to, now());
    }

    /** When {@link #tick} must be called; 0: never. */
    synchronized long nextTick() {
        return flushAt;
    }

    /** Stores a value. {@code expected} is the unique number that the item must have; 0 is any, but for {@link Mode#CAS}. */
    Change store(Mode mode, byte[] key, int flags, long expiry, byte[] value, long expected) {
        return store(mode, key, flags, expiry, value, expected, false, false);
    }

    /**
     * Stores a value.
     *
     * @param mode how
     * @param key whose
     * @param flags come back with it
     * @param expiry when it ends
     * @param value the value
     * @param expected the unique number that the item must have; 0 is any, but for {@link Mode#CAS}
     * @param allowsStale whether an item with a later number takes the value, marked as stale
     * @param isBinaryKey whether the key came in base 64
     * @return what came of it
     */
    synchronized Change store(Mode mode, byte[] key, int flags, long expiry, byte[] value, long expected, boolean allowsStale,
            boolean isBinaryKey) {
        counters.count(Counter.cmd_set);
        Item item = peek(key);
        boolean isMatch = item != null && expected != 0 && item.cas == expected;
        switch (mode) {
            case ADD -> {
                if (item != null) {
                    item.slab.touch(item);
                    return new Change(Outcome.NOT_STORED);
                }
            }
            case REPLACE -> {
                if (item == null) {
                    return new Change(Outcome.NOT_STORED);
                }
            }
            case CAS -> {
                boolean isLate = item != null && allowsStale && expected != 0 && Long.compareUnsigned(expected, item.cas) < 0;
                counters.count(item == null ? Counter.cas_misses : isMatch || isLate ? Counter.cas_hits : Counter.cas_badval);
                if (item == null || !isMatch && !isLate) {
                    return new Change(item == null ? Outcome.NOT_FOUND : Outcome.EXISTS);
                }
                if (!isMatch) {
                    boolean wasWon = item.isWon;
                    Change change = write(key, flags, item.expiry, value, isBinaryKey);
                    if (change.item != null) {
                        change.item.isStale = true;
                        change.item.isWon = wasWon;
                    }
                    return change;
                }
            }
            case APPEND, PREPEND -> {
                if (item == null || expected != 0 && !isMatch) {
                    return new Change(item == null ? Outcome.NOT_STORED : Outcome.EXISTS);
                }
                return join(item, value, mode == Mode.APPEND);
            }
            default -> { }
        }
        return write(key, flags, expiry, value, isBinaryKey);
    }

    private Change join(Item item, byte[] value, boolean isBehind) {
        if (Record.bytes(item.key.length, (long) item.length + value.length) > options.itemBytes()) {
            return new Change(Outcome.NOT_STORED);
        }
        byte[] old = shelf.value(item);
        byte[] joined = new byte[old.length + value.length];
        System.arraycopy(old, 0, joined, isBehind ? 0 : value.length, old.length);
        System.arraycopy(value, 0, joined, isBehind ? old.length : 0, value.length);
        return write(item.key, item.flags, item.expiry, joined, false);
    }

    /** Writes the key's new record, with a new unique number. */
    private Change write(byte[] key, int flags, long expiry, byte[] value, boolean isBinaryKey) {
        if (Record.bytes(key.length, value.length) > options.itemBytes()) {
            discard(key);
            return new Change(Outcome.TOO_LARGE);
        }
        Item item = shelf.write(key, flags, expiry, value, cas + 1, now());
        if (item == null) {
            return new Change(Outcome.NO_MEMORY);
        }
        cas++;
        item.wasFetched = false;
        item.isStale = false;
        item.isWon = false;
        item.isBinaryKey = isBinaryKey;
        return new Change(Outcome.STORED, item);
    }

    /** Writes the item's record anew, with what the server knows of it; null if there is no memory. */
    private Item rewrite(Item item, long expiry, byte[] value, long unique) {
        boolean wasFetched = item.wasFetched;
        boolean wasStale = item.isStale;
        boolean wasWon = item.isWon;
        boolean wasBinaryKey = item.isBinaryKey;
        long accessed = item.accessed;
        Item written = shelf.write(item.key, item.flags, expiry, value, unique, now());
        if (written != null) {
            written.wasFetched = wasFetched;
            written.isStale = wasStale;
            written.isWon = wasWon;
            written.isBinaryKey = wasBinaryKey;
            written.accessed = accessed;
        }
        return written;
    }

    /** Deletes a value that a client wanted to replace by one that is too large: the old one must not stay. */
    synchronized void discard(byte[] key) {
        Item item = peek(key);
        if (item != null) {
            shelf.unlink(item, now());
        }
    }

    /** Deletes the key. {@code expected} is the unique number that the item must have; null: any. */
    synchronized Outcome delete(byte[] key, Long expected) {
        Item item = peek(key);
        boolean isThere = item != null && (expected == null || item.cas == expected);
        counters.count(isThere ? Counter.delete_hits : Counter.delete_misses);
        if (isThere) {
            shelf.unlink(item, now());
        }
        return isThere ? Outcome.STORED : item == null ? Outcome.NOT_FOUND : Outcome.EXISTS;
    }

    /** Marks the item as stale, with a new unique number; and with a new expiry if one is given. */
    synchronized Outcome invalidate(byte[] key, Long expected, Long expiry) {
        Item item = peek(key);
        if (item == null || expected != null && item.cas != expected) {
            counters.count(Counter.delete_misses);
            return item == null ? Outcome.NOT_FOUND : Outcome.EXISTS;
        }
        Item written = rewrite(item, expiry == null ? item.expiry : expiry, shelf.value(item), cas + 1);
        if (written == null) {
            return Outcome.NO_MEMORY;
        }
        cas++;
        written.isStale = true;
        written.isWon = false;
        return Outcome.STORED;
    }

    /** Gives the key's item another expiry. */
    synchronized Change touch(byte[] key, long expiry) {
        counters.count(Counter.cmd_touch);
        Item item = peek(key);
        counters.count(item == null ? Counter.touch_misses : Counter.touch_hits);
        if (item == null) {
            return new Change(Outcome.NOT_FOUND);
        }
        bump(item);
        Item touched = expire(item, expiry);
        return new Change(touched == null ? Outcome.NO_MEMORY : Outcome.STORED, touched);
    }

    /** Gives the item another expiry, with the same unique number: its value in a new record. Null if there is no memory. */
    synchronized Item expire(Item item, long expiry) {
        return item.expiry == expiry ? item : rewrite(item, expiry, shelf.value(item), item.cas);
    }

    /** The result of {@link #add}; the item as in {@link Change}. */
    record Sum(Outcome outcome, long value, Item item) {
        Sum(Outcome outcome) {
            this(outcome, 0, null);
        }
    }

    /** Adds to a decimal number, or subtracts down to 0. {@code expected} is the unique number that the item must have, 0 for any. */
    synchronized Sum add(byte[] key, long delta, boolean isDecrement, long expected) {
        Item item = peek(key);
        if (item == null) {
            counters.count(isDecrement ? Counter.decr_misses : Counter.incr_misses);
            return new Sum(Outcome.NOT_FOUND);
        }
        if (item.length == 0 || item.length >= NUMBER_MAX) {
            return new Sum(Outcome.NOT_A_NUMBER);
        }
        if (expected != 0 && item.cas != expected) {
            return new Sum(Outcome.EXISTS);
        }
        Long old = Numbers.unsigned(shelf.value(item));
        if (old == null) {
            return new Sum(Outcome.NOT_A_NUMBER);
        }
        counters.count(isDecrement ? Counter.decr_hits : Counter.incr_hits);
        long sum = !isDecrement ? old + delta : Long.compareUnsigned(old, delta) < 0 ? 0 : old - delta;
        byte[] digits = Long.toUnsignedString(sum).getBytes(StandardCharsets.US_ASCII);
        if (digits.length > item.length) {
            Change change = write(key, item.flags, item.expiry, digits, false);
            return new Sum(change.outcome, sum, change.item);
        }
        // As in memcached: a number that gets shorter keeps its length, and the item what is known of it.
        byte[] padded = new byte[item.length];
        java.util.Arrays.fill(padded, (byte) ' ');
        System.arraycopy(digits, 0, padded, 0, digits.length);
        Item written = rewrite(item, item.expiry, padded, cas + 1);
        if (written == null) {
            return new Sum(Outcome.NO_MEMORY);
        }
        cas++;
        return new Sum(Outcome.STORED, sum, written);
    }

    /** Deletes all values: now, or at that time. */
    synchronized void flush(long at) {
        counters.count(Counter.cmd_flush);
        flushAt = Math.max(1, at);
        long now = now();
        if (flushAt <= now) {
            // As in memcached, which tells flushed items by their number.
            cas++;
        }
        tick(now);
    }

    /** Calls the visitor with every figure of {@code stats}. */
    synchronized void stats(BiConsumer<String, Object> visitor) {
        for (Counter counter : Counter.values()) {
            visitor.accept(counter.name(), counters.get(counter));
        }
        shelf.stats(visitor);
    }

    /** Calls the visitor with the figures of every class in use. */
    synchronized void slabStats(boolean areItems, BiConsumer<String, Object> visitor) {
        shelf.slabStats(areItems, visitor);
    }
}

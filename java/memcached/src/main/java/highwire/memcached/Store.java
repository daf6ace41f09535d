package highwire.memcached;

import highwire.memcached.Counters.Counter;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;

/**
 * The keys and their values. Records and index lie in memory that readers READ; the data for changing them
 * lies in the heap, behind one lock.
 *
 * <p>A record is never changed: each change writes a new one into another chunk, publishes it in the index, and clears the old one's version, in this
 * order and before it is acknowledged.
 */
final class Store {
    static final int KEY_MAX = 250;
    private static final long MONTH_SECONDS = 60L * 60 * 24 * 30;
    /** The past, as an expiry. */
    private static final long LONG_AGO = 1;

    /** How a value is stored. */
    enum Mode { SET, ADD, REPLACE, APPEND, PREPEND }

    /** The result of a change. */
    enum Outcome { STORED, NOT_STORED, EXISTS, NOT_FOUND, TOO_LARGE, NO_MEMORY, NOT_A_NUMBER }

    final StoreOptions options;
    final Counters counters = new Counters();
    private final MemorySegment memory;
    private final Index index;
    private final Slabs slabs;
    private final LongSupplier clock;
    private final Map<ByteBuffer, Item> items = new HashMap<>();
    /** Readers cannot guess the version of a record that is yet to be written. */
    private long version = new SecureRandom().nextLong() | 1;
    private long cas;
    private long bytes;
    private long flushAt;
    /** Tests plant defects here. */
    boolean clearsVersions = true;

    /** Makes an empty store in memory that is at least as large as the options say; clock in milliseconds since 1970. */
    Store(StoreOptions options, MemorySegment memory, LongSupplier clock) {
        this.options = options;
        this.memory = memory;
        this.clock = clock;
        long indexBytes = (long) Index.BUCKET_BYTES << options.bucketBits();
        this.index = new Index(memory, 0, options.bucketBits());
        this.slabs = new Slabs(indexBytes, options.bytes(), options.itemBytes());
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

    /** The item, marked as the last used; null if there is none. */
    synchronized Item find(byte[] key) {
        Item item = peek(key);
        if (item != null) {
            item.slab.touch(item);
        }
        return item;
    }

    /** The item, without marking it as used. */
    synchronized Item peek(byte[] key) {
        long now = now();
        tick(now);
        Item item = items.get(ByteBuffer.wrap(key));
        if (item != null && item.isExpired(now)) {
            counters.count(Counter.reclaimed);
            unlink(item, now);
            return null;
        }
        return item;
    }

    /** An item for a client that asks for its value; counts. */
    synchronized Item get(byte[] key) {
        counters.count(Counter.cmd_get);
        Item item = find(key);
        counters.count(item == null ? Counter.get_misses : Counter.get_hits);
        if (item != null) {
            item.wasFetched = true;
            item.accessed = now();
        }
        return item;
    }

    synchronized byte[] value(Item item) {
        return Record.value(memory, item.at);
    }

    /** Runs what is due: a flush that was ordered for later. */
    synchronized void tick(long now) {
        if (flushAt != 0 && now >= flushAt) {
            flushAt = 0;
            for (Item item : items.values().toArray(Item[]::new)) {
                unlink(item, now);
            }
        }
    }

    /** When {@link #tick} must be called; 0: never. */
    synchronized long nextTick() {
        return flushAt;
    }

    /** Stores a value. {@code expected} is the unique number that the item must have, 0 for any. */
    synchronized Outcome store(Mode mode, byte[] key, int flags, long expiry, byte[] value, long expected) {
        counters.count(Counter.cmd_set);
        Item item = find(key);
        if (expected != 0) {
            counters.count(item == null ? Counter.cas_misses : item.cas == expected ? Counter.cas_hits : Counter.cas_badval);
            if (item == null || item.cas != expected) {
                return item == null ? Outcome.NOT_FOUND : Outcome.EXISTS;
            }
        }
        if (mode == Mode.ADD ? item != null : mode != Mode.SET && item == null) {
            return Outcome.NOT_STORED;
        }
        if (mode == Mode.APPEND || mode == Mode.PREPEND) {
            byte[] old = value(item);
            byte[] joined = new byte[old.length + value.length];
            System.arraycopy(old, 0, joined, mode == Mode.APPEND ? 0 : value.length, old.length);
            System.arraycopy(value, 0, joined, mode == Mode.APPEND ? old.length : 0, value.length);
            return write(key, item.flags, item.expiry, joined, ++cas);
        }
        if (item != null) {
            item.wasFetched = false;
        }
        return write(key, flags, expiry, value, ++cas);
    }

    /** Writes the key's new record. The old one goes even if the new value is too large to be kept. */
    private Outcome write(byte[] key, int flags, long expiry, byte[] value, long unique) {
        long now = now();
        long recordBytes = Record.bytes(key.length, value.length);
        SlabClass slab = slabs.forBytes(recordBytes);
        long chunk = slab == null ? -1 : allocate(slab, now);
        // Only now: making room may have evicted the same item.
        Item item = items.get(ByteBuffer.wrap(key));
        if (chunk < 0) {
            if (item != null) {
                unlink(item, now);
            }
            return slab == null ? Outcome.TOO_LARGE : Outcome.NO_MEMORY;
        }
        boolean isNew = item == null;
        long oldAt = isNew ? 0 : item.at;
        SlabClass oldSlab = isNew ? null : item.slab;
        if (isNew) {
            item = new Item(key);
            items.put(ByteBuffer.wrap(key), item);
            counters.count(Counter.total_items);
        } else {
            oldSlab.unlink(item);
            bytes -= Record.bytes(key.length, item.length);
        }
        item.at = chunk;
        item.slab = slab;
        item.flags = flags;
        item.expiry = expiry;
        item.cas = unique;
        item.length = value.length;
        item.accessed = now;
        item.isStale = false;
        item.isWon = false;
        bytes += recordBytes;
        slab.link(item);
        version += 2;
        Record.write(memory, chunk, version, item, value);
        index.publish(item, recordBytes, isNew);
        if (!isNew) {
            end(oldSlab, oldAt, now);
        }
        return Outcome.STORED;
    }

    private void end(SlabClass slab, long at, long now) {
        if (clearsVersions) {
            Record.clear(memory, at);
        }
        slab.giveBack(at, now + options.restMillis());
    }

    /** A chunk, after evicting the least recently used item if necessary. */
    private long allocate(SlabClass slab, long now) {
        long chunk = slab.take(now);
        if (chunk < 0 && slabs.grow(slab)) {
            chunk = slab.take(now);
        }
        if (chunk < 0) {
            // A full and busy store keeps some chunks at rest, and uses the one that has rested longest.
            while (slab.oldest() != null && slab.resting() <= slab.used / 32) {
                evictOldest(slab, now);
            }
            chunk = slab.takeEarly();
            if (chunk >= 0) {
                counters.count(Counter.chunks_reused_early);
            }
        }
        return chunk;
    }

    private void evictOldest(SlabClass slab, long now) {
        Item oldest = slab.oldest();
        counters.count(oldest.isExpired(now) ? Counter.reclaimed : Counter.evictions);
        slab.evictions++;
        unlink(oldest, now);
    }

    /** Withdraws the item, then ends its record. */
    private void unlink(Item item, long now) {
        items.remove(ByteBuffer.wrap(item.key));
        item.slab.unlink(item);
        bytes -= Record.bytes(item.key.length, item.length);
        index.withdraw(item);
        end(item.slab, item.at, now);
    }

    /** Deletes the key. {@code expected} is the unique number that the item must have, 0 for any. */
    synchronized Outcome delete(byte[] key, long expected) {
        Item item = peek(key);
        if (item == null) {
            counters.count(Counter.delete_misses);
            return Outcome.NOT_FOUND;
        }
        if (expected != 0 && item.cas != expected) {
            return Outcome.EXISTS;
        }
        counters.count(Counter.delete_hits);
        unlink(item, now());
        return Outcome.STORED;
    }

    /** Marks the item as stale, with a new unique number; and with a new expiry if one is given. */
    synchronized Outcome invalidate(byte[] key, long expected, Long expiry) {
        Item item = peek(key);
        if (item == null || expected != 0 && item.cas != expected) {
            return item == null ? Outcome.NOT_FOUND : Outcome.EXISTS;
        }
        Outcome outcome = write(key, item.flags, expiry == null ? item.expiry : expiry, value(item), ++cas);
        item.isStale = true;
        item.isWon = false;
        return outcome;
    }

    /** Gives the item another expiry: its value in a new record, with the same unique number. */
    synchronized Outcome touch(byte[] key, long expiry) {
        counters.count(Counter.cmd_touch);
        Item item = find(key);
        counters.count(item == null ? Counter.touch_misses : Counter.touch_hits);
        return item == null ? Outcome.NOT_FOUND : rewrite(item, expiry);
    }

    private Outcome rewrite(Item item, long expiry) {
        boolean wasStale = item.isStale;
        boolean wasWon = item.isWon;
        Outcome outcome = write(item.key, item.flags, expiry, value(item), item.cas);
        item.isStale = wasStale;
        item.isWon = wasWon;
        return outcome;
    }

    /** The result of {@link #add}. */
    record Sum(Outcome outcome, long value) {}

    /** Adds to a decimal number, or subtracts down to 0. */
    synchronized Sum add(byte[] key, long delta, boolean isDecrement, long expected) {
        Item item = find(key);
        boolean isThere = item != null;
        counters.count(isDecrement ? isThere ? Counter.decr_hits : Counter.decr_misses
                : isThere ? Counter.incr_hits : Counter.incr_misses);
        if (!isThere || expected != 0 && item.cas != expected) {
            return new Sum(isThere ? Outcome.EXISTS : Outcome.NOT_FOUND, 0);
        }
        String text = item.length > 20 ? "" : new String(value(item), StandardCharsets.US_ASCII).stripTrailing();
        long old;
        try {
            old = Long.parseUnsignedLong(text.startsWith("+") ? "" : text);
        } catch (NumberFormatException e) {
            return new Sum(Outcome.NOT_A_NUMBER, 0);
        }
        long sum = !isDecrement ? old + delta : Long.compareUnsigned(old, delta) < 0 ? 0 : old - delta;
        String digits = Long.toUnsignedString(sum);
        if (isDecrement) {
            // As in memcached: a number that gets shorter keeps its length.
            digits = digits + " ".repeat(Math.max(0, item.length - digits.length()));
        }
        Outcome outcome = write(key, item.flags, item.expiry, digits.getBytes(StandardCharsets.US_ASCII), ++cas);
        return new Sum(outcome, sum);
    }

    /** Deletes all values: now, or at that time. */
    synchronized void flush(long at) {
        counters.count(Counter.cmd_flush);
        flushAt = Math.max(1, at);
        tick(now());
    }

    /** Calls the visitor with every figure of {@code stats}. */
    synchronized void stats(BiConsumer<String, Object> visitor) {
        for (Counter counter : Counter.values()) {
            visitor.accept(counter.name(), counters.get(counter));
        }
        visitor.accept("curr_items", items.size());
        visitor.accept("bytes", bytes);
        visitor.accept("limit_maxbytes", options.bytes());
    }

    /** Calls the visitor with the figures of every class in use. */
    synchronized void slabStats(boolean areItems, BiConsumer<String, Object> visitor) {
        String before = areItems ? "items:" : "";
        for (SlabClass slab : slabs.classes()) {
            if (slab.pages == 0) {
                continue;
            }
            String name = before + slab.number + ":";
            if (areItems) {
                visitor.accept(name + "number", slab.used);
                visitor.accept(name + "evicted", slab.evictions);
            } else {
                visitor.accept(name + "chunk_size", slab.chunkBytes);
                visitor.accept(name + "total_pages", slab.pages);
                visitor.accept(name + "used_chunks", slab.used);
                visitor.accept(name + "resting_chunks", slab.resting());
            }
        }
    }
}

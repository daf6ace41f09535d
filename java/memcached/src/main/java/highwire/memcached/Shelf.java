package highwire.memcached;

import highwire.memcached.Counters.Counter;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BiConsumer;

/**
 * The records, in memory that readers READ, and which item has which. For one thread at a time.
 *
 * <p>A record is never changed: each change writes a new one into another chunk, publishes it in the index, and clears the old one's version, in this
 * order and before it is acknowledged. A page changes its class only after all its records have ended.
 */
final class Shelf {
    /** Pages that one {@link #sweep} gives away at most. */
    private static final int SWEPT = 8;

    /** The result of {@link #reassign}. */
    enum Move { OK, BADCLASS, NOSPARE, SAME }

    private final StoreOptions options;
    private final Counters counters;
    private final MemorySegment memory;
    private final Index index;
    private final Slabs slabs;
    private final Map<ByteBuffer, Item> items = new HashMap<>();
    /** Readers cannot guess the version of a record that is yet to be written. */
    private long version = new SecureRandom().nextLong() | 1;
    private long bytes;
    /** Tests plant defects here. */
    boolean clearsVersions = true;

    Shelf(StoreOptions options, MemorySegment memory, Counters counters) {
        this.options = options;
        this.counters = counters;
        this.memory = memory;
        long indexBytes = (long) Index.BUCKET_BYTES << options.bucketBits();
        this.index = new Index(memory, 0, options.bucketBits());
        this.slabs = new Slabs(indexBytes, options.bytes(), options.itemBytes());
    }

    Item find(byte[] key) {
        return items.get(ByteBuffer.wrap(key));
    }

    byte[] value(Item item) {
        return Record.value(memory, item.at);
    }

    /** Writes the key's new record, which fits into a chunk; null if there is no memory, and then the key has no value any more. */
    Item write(byte[] key, int flags, long expiry, byte[] value, long unique, long now) {
        long recordBytes = Record.bytes(key.length, value.length);
        SlabClass slab = slabs.forBytes(recordBytes);
        long chunk = allocate(slab, now);
        // Only now: making room may have evicted the same item.
        Item item = find(key);
        if (chunk < 0) {
            if (item != null) {
                unlink(item, now);
            }
            return null;
        }
        boolean isNew = item == null;
        long oldAt = isNew ? 0 : item.at;
        SlabClass oldSlab = isNew ? null : item.slab;
        if (isNew) {
            try {
                item = new Item(key);
                items.put(ByteBuffer.wrap(key), item);
            } catch (OutOfMemoryError e) {
                end(slab, chunk, now);
                throw e;
            }
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
        bytes += recordBytes;
        slab.link(item);
        publish(item, value, isNew);
        if (!isNew) {
            end(oldSlab, oldAt, now);
        }
        return item;
    }

    private void publish(Item item, byte[] value, boolean isNew) {
        version += 2;
        Record.write(memory, item.at, version, item, value);
        index.publish(item, Record.bytes(item.key.length, item.length), isNew);
    }

    private void end(SlabClass slab, long at, long now) {
        if (clearsVersions) {
            Record.clear(memory, at);
        }
        slab.release(slabs.pageOf(at), at, now + options.restMillis());
    }

    /** Withdraws the item, then ends its record. */
    void unlink(Item item, long now) {
        items.remove(ByteBuffer.wrap(item.key));
        item.slab.unlink(item);
        bytes -= Record.bytes(item.key.length, item.length);
        index.withdraw(item);
        end(item.slab, item.at, now);
    }

    /** Withdraws all items. */
    void clear(long now) {
        for (Item item : items.values().toArray(Item[]::new)) {
            unlink(item, now);
        }
    }

    /** A chunk: a free one, or of a page that another class can spare, or else the least recently used item's. */
    private long allocate(SlabClass slab, long now) {
        long chunk = slab.take(now);
        if (chunk < 0 && slabs.grow(slab)) {
            chunk = slab.take(now);
        }
        if (chunk < 0 && wantsPage(slab, now)) {
            chunk = slab.take(now);
        }
        if (chunk < 0) {
            // A full and busy store keeps some chunks at rest, and uses the one that has rested longest.
            long kept = options.restMillis() == 0 ? 0 : slab.used / 32;
            while (slab.oldest() != null && slab.resting() <= kept) {
                evictOldest(slab, now);
            }
            chunk = slab.takeEarly();
            if (chunk >= 0) {
                counters.count(Counter.chunks_reused_early);
            }
        }
        return chunk;
    }

    /**
     * Brings a page to a class that has no chunk left, and returns whether it did: from a class with a page's worth of free chunks; for its first page from
     * the largest class; and each time that it has evicted a page's worth of items, from the class whose items are the stalest, if its own are fresher.
     */
    private boolean wantsPage(SlabClass slab, long now) {
        SlabClass source = slab.resting() > slab.used / 32 ? null : slabs.withSpare(slab, 1);
        if (source != null) {
            move(source.emptiest(), slab, now);
            return true;
        }
        if (slab.pages.isEmpty()) {
            source = slabs.largest(slab);
        } else if (slab.oldest() != null && (slab.evictions + 1) % slab.chunksPerPage == 0) {
            source = slabs.stalest(slab);
            long age = source == null ? 0 : now - Slabs.accessed(source);
            source = age > 2 * (now - Slabs.accessed(slab)) + 1000 ? source : null;
        }
        if (source == null || source.oldest() == null && source.emptiest() == null) {
            return false;
        }
        move(source.oldest() == null ? source.emptiest() : slabs.pageOf(source.oldest().at), slab, now);
        return true;
    }

    private void evictOldest(SlabClass slab, long now) {
        slab.evictions++;
        evict(slab.oldest(), now);
    }

    private void evict(Item item, long now) {
        counters.count(item.isExpired(now) ? Counter.reclaimed : Counter.evictions);
        unlink(item, now);
    }

    /** Gives a page to another class, or to none: its items go into other chunks of their class, or are evicted if there is no room. */
    private void move(Page page, SlabClass target, long now) {
        SlabClass source = page.owner;
        source.removePage(page);
        for (int i = 0; page.live > 0 && i < source.chunksPerPage; i++) {
            long at = page.at + (long) i * source.chunkBytes;
            if (at >= page.fresh) {
                break;
            }
            // A record of this page has its key's item, if it has not ended.
            Item item = Record.version(memory, at) == 0 ? null : find(Record.key(memory, at));
            if (item == null || item.at != at) {
                continue;
            }
            long chunk = item.isExpired(now) ? -1 : source.take(now);
            if (chunk < 0 && !item.isExpired(now)) {
                chunk = source.takeEarly();
            }
            if (chunk < 0) {
                if (!item.isExpired(now)) {
                    counters.count(Counter.slab_reassign_evictions_nomem);
                }
                evict(item, now);
                continue;
            }
            byte[] value = value(item);
            item.at = chunk;
            publish(item, value, false);
            end(source, at, now);
            counters.count(Counter.slab_reassign_rescues);
        }
        // Every version has gone before; now a chunk of any size begins with the version 0.
        VarHandle.storeStoreFence();
        memory.asSlice(page.at, options.itemBytes()).fill((byte) 0);
        counters.count(Counter.slabs_moved);
        if (target == null) {
            slabs.pool(page);
        } else {
            target.addPage(page);
        }
    }

    /** Takes pages from classes that have several pages' worth of free chunks. */
    void sweep(long now) {
        for (int i = 0; i < SWEPT; i++) {
            SlabClass source = slabs.withSpare(null, Slabs.SPARE);
            if (source == null) {
                return;
            }
            move(source.emptiest(), null, now);
        }
    }

    /** Moves a page from one class to another, as a client orders it; from class −1: from any. */
    Move reassign(int from, int to, long now) {
        int count = slabs.classes().size();
        if (from == to) {
            return Move.SAME;
        }
        // Class 0 is the pool of pages that belong to none.
        if (from < -1 || from > count || to < 0 || to > count) {
            return Move.BADCLASS;
        }
        SlabClass target = to == 0 ? null : slabs.classes().get(to - 1);
        if (from == 0) {
            return slabs.pooled() > 0 && slabs.grow(target) ? Move.OK : Move.NOSPARE;
        }
        SlabClass source = from < 0 ? slabs.largest(target) : slabs.classes().get(from - 1);
        if (source == null || source.pages.size() < 2) {
            return Move.NOSPARE;
        }
        move(source.emptiest(), target, now);
        return Move.OK;
    }

    void stats(BiConsumer<String, Object> visitor) {
        visitor.accept("curr_items", items.size());
        visitor.accept("bytes", bytes);
        visitor.accept("limit_maxbytes", options.bytes());
        visitor.accept("slab_global_page_pool", slabs.pooled());
    }

    void slabStats(boolean areItems, BiConsumer<String, Object> visitor) {
        String before = areItems ? "items:" : "";
        int active = 0;
        for (SlabClass slab : slabs.classes()) {
            if (slab.pages.isEmpty()) {
                continue;
            }
            active++;
            String name = before + slab.number + ":";
            if (areItems) {
                visitor.accept(name + "number", slab.used);
                visitor.accept(name + "evicted", slab.evictions);
            } else {
                visitor.accept(name + "chunk_size", slab.chunkBytes);
                visitor.accept(name + "chunks_per_page", slab.chunksPerPage);
                visitor.accept(name + "total_pages", slab.pages.size());
                visitor.accept(name + "total_chunks", (long) slab.pages.size() * slab.chunksPerPage);
                visitor.accept(name + "used_chunks", slab.used);
                visitor.accept(name + "free_chunks", slab.free);
                visitor.accept(name + "resting_chunks", slab.resting());
            }
        }
        if (!areItems) {
            visitor.accept("active_slabs", active);
            visitor.accept("total_malloced", slabs.touched());
        }
    }
}

package highwire.memcached;

import java.util.concurrent.atomic.AtomicLongArray;

/** The counters of {@code stats}. */
final class Counters {
    /** The names as memcached has them. */
    enum Counter {
        cmd_get, cmd_set, cmd_flush, cmd_touch, cmd_meta, get_hits, get_misses, get_expired, delete_misses, delete_hits, incr_misses,
        incr_hits, decr_misses, decr_hits, cas_misses, cas_hits, cas_badval, touch_hits, touch_misses, total_items, evictions,
        reclaimed, chunks_reused_early, slabs_moved, slab_reassign_rescues,
        slab_reassign_evictions_nomem, handler_faults, total_connections, rejected_connections, curr_connections, rdma_readers, rpc_calls, bytes_read,
        bytes_written
    }

    private final AtomicLongArray values = new AtomicLongArray(Counter.values().length);

    void count(Counter counter) {
        add(counter, 1);
    }

    void add(Counter counter, long change) {
        values.addAndGet(counter.ordinal(), change);
    }

    long get(Counter counter) {
        return values.get(counter.ordinal());
    }

    /** Resets counts of events; figures of the present state stay. */
    void reset() {
        for (Counter counter : Counter.values()) {
            if (counter != Counter.curr_connections && counter != Counter.rdma_readers) {
                values.set(counter.ordinal(), 0);
            }
        }
    }
}

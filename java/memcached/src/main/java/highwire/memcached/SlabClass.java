package highwire.memcached;

import java.util.ArrayDeque;

/**
 * Chunks of one size, and the items in them by last use.
 *
 * <p>A chunk that was given back rests before it is used again, so that a READ in flight when its record
 * ended usually finds it unchanged. If there is no other chunk it is used earlier: a reader notices that by
 * the record itself.
 */
final class SlabClass {
    final int number;
    final int chunkBytes;
    private final ArrayDeque<long[]> resting = new ArrayDeque<>();
    private final ArrayDeque<Long> fresh = new ArrayDeque<>();
    private Item oldest;
    private Item newest;
    int pages;
    long used;
    long evictions;

    SlabClass(int number, int chunkBytes) {
        this.number = number;
        this.chunkBytes = chunkBytes;
    }

    /** Takes a page's chunks. */
    void addPage(long at, long bytes) {
        pages++;
        for (long chunk = at; chunk + chunkBytes <= at + bytes; chunk += chunkBytes) {
            fresh.add(chunk);
        }
    }

    /** A chunk whose rest is over; negative if there is none. */
    long take(long now) {
        Long chunk = fresh.poll();
        if (chunk == null && !resting.isEmpty() && resting.peek()[1] <= now) {
            chunk = resting.poll()[0];
        }
        return chunk == null ? -1 : chunk;
    }

    /** The chunk that has rested longest, even if its rest is not over; negative if there is none. */
    long takeEarly() {
        return resting.isEmpty() ? -1 : resting.poll()[0];
    }

    /** Gives a chunk back, which may be used again after that time. */
    void giveBack(long chunk, long from) {
        resting.add(new long[] {chunk, from});
    }

    int resting() {
        return resting.size();
    }

    Item oldest() {
        return oldest;
    }

    void link(Item item) {
        item.newer = null;
        item.older = newest;
        if (newest != null) {
            newest.newer = item;
        } else {
            oldest = item;
        }
        newest = item;
        used++;
    }

    void unlink(Item item) {
        if (item.older != null) {
            item.older.newer = item.newer;
        } else {
            oldest = item.newer;
        }
        if (item.newer != null) {
            item.newer.older = item.older;
        } else {
            newest = item.older;
        }
        item.older = null;
        item.newer = null;
        used--;
    }

    /** The item was used just now. */
    void touch(Item item) {
        if (item != newest) {
            unlink(item);
            link(item);
        }
    }
}

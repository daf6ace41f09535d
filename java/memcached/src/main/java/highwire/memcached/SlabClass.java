package highwire.memcached;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * Chunks of one size, and the items in them by last use.
 *
 * <p>A chunk that was given back rests before it is used again, so that a READ in flight when its record
 * ended usually finds it unchanged. If there is no other chunk it is used earlier: a reader notices that by
 * the record itself.
 */
final class SlabClass {
    /** A chunk that may be used again, in its page's generation. */
    private record Resting(long at, Page page, int generation, long from) {
        boolean isThere() {
            return page.generation == generation;
        }
    }

    final int number;
    final int chunkBytes;
    final int chunksPerPage;
    final List<Page> pages = new ArrayList<>();
    private final ArrayDeque<Resting> resting = new ArrayDeque<>();
    private final ArrayDeque<Page> fresh = new ArrayDeque<>();
    private Item oldest;
    private Item newest;
    /** Entries of {@link #resting} whose page has gone. */
    private int left;
    /** Chunks without a record. */
    int free;
    long used;
    long evictions;

    SlabClass(int number, int chunkBytes, int pageBytes) {
        this.number = number;
        this.chunkBytes = chunkBytes;
        this.chunksPerPage = pageBytes / chunkBytes;
    }

    /** Takes a page's chunks. */
    void addPage(Page page) {
        page.owner = this;
        page.live = 0;
        page.fresh = page.at;
        pages.add(page);
        fresh.add(page);
        free += chunksPerPage;
    }

    /** Gives a page away; its records are still there, and {@link #release} is called for each. */
    void removePage(Page page) {
        int unused = (int) ((page.at + (long) chunksPerPage * chunkBytes - page.fresh) / chunkBytes);
        free -= chunksPerPage - page.live;
        left += chunksPerPage - page.live - unused;
        page.owner = null;
        page.generation++;
        pages.remove(page);
        fresh.remove(page);
        if (left > resting.size() / 2) {
            resting.removeIf(chunk -> !chunk.isThere());
            left = 0;
        }
    }

    /** The chunk's record has ended: it may be used again after that time. */
    void release(Page page, long chunk, long from) {
        page.live--;
        if (page.owner == this) {
            free++;
            resting.add(new Resting(chunk, page, page.generation, from));
        }
    }

    /** A chunk whose rest is over; negative if there is none. */
    long take(long now) {
        Page page = fresh.peek();
        if (page != null) {
            long chunk = page.fresh;
            page.fresh += chunkBytes;
            if (page.fresh + chunkBytes > page.at + (long) chunksPerPage * chunkBytes) {
                fresh.poll();
            }
            return use(page, chunk);
        }
        Resting first = first();
        return first == null || first.from > now ? -1 : takeEarly();
    }

    /** The chunk that has rested longest, even if its rest is not over; negative if there is none. */
    long takeEarly() {
        Resting first = first();
        if (first == null) {
            return -1;
        }
        resting.poll();
        return use(first.page, first.at);
    }

    private Resting first() {
        while (!resting.isEmpty() && !resting.peek().isThere()) {
            resting.poll();
            left--;
        }
        return resting.peek();
    }

    private long use(Page page, long chunk) {
        page.live++;
        free--;
        return chunk;
    }

    int resting() {
        return resting.size() - left;
    }

    /** Whether there is as much room without records as this many pages have. */
    boolean hasSpare(double pagesWorth) {
        return !pages.isEmpty() && free >= pagesWorth * chunksPerPage;
    }

    /** The page with the fewest records; null if there is none. */
    Page emptiest() {
        Page best = null;
        for (Page page : pages) {
            if (best == null || page.live < best.live) {
                best = page;
            }
        }
        return best;
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

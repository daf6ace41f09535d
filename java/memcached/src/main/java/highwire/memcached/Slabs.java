package highwire.memcached;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * Memory in pages, each cut into chunks of one class. A page belongs to the class that needs it: {@link Store} empties it before it changes its owner.
 */
final class Slabs {
    private static final int SMALLEST = 128;
    /** A class gives pages away if it has this many pages' worth of free chunks. */
    static final double SPARE = 2.5;

    private final List<SlabClass> classes = new ArrayList<>();
    private final List<Page> pages = new ArrayList<>();
    /** Pages that had an owner, and have none now. */
    private final ArrayDeque<Page> pool = new ArrayDeque<>();
    private final long start;
    private final int count;
    private final int pageBytes;

    Slabs(long start, long end, int pageBytes) {
        this.start = start;
        this.count = (int) Math.min(Integer.MAX_VALUE, (end - start) / pageBytes);
        this.pageBytes = pageBytes;
        for (int bytes = SMALLEST; bytes < pageBytes; bytes = bytes * 5 / 4 + 63 & ~63) {
            classes.add(new SlabClass(classes.size() + 1, bytes, pageBytes));
        }
        classes.add(new SlabClass(classes.size() + 1, pageBytes, pageBytes));
    }

    List<SlabClass> classes() {
        return classes;
    }

    /** Pages without an owner. */
    int pooled() {
        return pool.size();
    }

    /** Bytes of all pages that were ever used. */
    long touched() {
        return (long) pages.size() * pageBytes;
    }

    Page pageOf(long chunk) {
        return pages.get((int) ((chunk - start) / pageBytes));
    }

    /** The class of the smallest chunk that holds this much; null if none does. */
    SlabClass forBytes(long bytes) {
        int low = 0;
        int high = classes.size();
        while (low < high) {
            int middle = low + high >>> 1;
            if (classes.get(middle).chunkBytes < bytes) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low < classes.size() ? classes.get(low) : null;
    }

    /** Gives the class another page; false if all have an owner. */
    boolean grow(SlabClass slab) {
        Page page = pool.poll();
        if (page == null && pages.size() < count) {
            page = new Page(start + (long) pages.size() * pageBytes);
            pages.add(page);
        }
        if (page != null) {
            slab.addPage(page);
        }
        return page != null;
    }

    /** Takes a page that has no owner and no records any more. */
    void pool(Page page) {
        pool.add(page);
    }

    /** A class other than this one that has this many pages' worth of free chunks; null if there is none. */
    SlabClass withSpare(SlabClass than, double pagesWorth) {
        for (SlabClass slab : classes) {
            if (slab != than && slab.hasSpare(pagesWorth)) {
                return slab;
            }
        }
        return null;
    }

    /** The class that has most pages, and among those the one whose oldest item was used least recently; null if none has any. */
    SlabClass largest(SlabClass than) {
        SlabClass best = null;
        for (SlabClass slab : classes) {
            boolean isBetter = best == null || slab.pages.size() > best.pages.size()
                    || slab.pages.size() == best.pages.size() && accessed(slab) < accessed(best);
            if (slab != than && !slab.pages.isEmpty() && isBetter) {
                best = slab;
            }
        }
        return best;
    }

    /** The class, of those with several pages, whose oldest item was used least recently; null if there is none. */
    SlabClass stalest(SlabClass than) {
        SlabClass best = null;
        for (SlabClass slab : classes) {
            if (slab != than && slab.pages.size() > 1 && (best == null || accessed(slab) < accessed(best))) {
                best = slab;
            }
        }
        return best;
    }

    static long accessed(SlabClass slab) {
        return slab.oldest() == null ? 0 : slab.oldest().accessed;
    }
}

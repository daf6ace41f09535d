package highwire.memcached;

import java.util.ArrayList;
import java.util.List;

/**
 * Memory in pages, each cut into chunks of one class. A page stays with its class, so that chunks always
 * begin in the same places.
 */
final class Slabs {
    private static final int SMALLEST = 128;

    private final List<SlabClass> classes = new ArrayList<>();
    private final long end;
    private final int pageBytes;
    private long next;

    Slabs(long start, long end, int pageBytes) {
        this.next = start;
        this.end = end;
        this.pageBytes = pageBytes;
        for (int bytes = SMALLEST; bytes < pageBytes; bytes = bytes * 5 / 4 + 63 & ~63) {
            classes.add(new SlabClass(classes.size() + 1, bytes));
        }
        classes.add(new SlabClass(classes.size() + 1, pageBytes));
    }

    List<SlabClass> classes() {
        return classes;
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

    /** Gives the class another page; false if there is none. */
    boolean grow(SlabClass slab) {
        if (end - next < pageBytes) {
            return false;
        }
        slab.addPage(next, pageBytes);
        next += pageBytes;
        return true;
    }
}

package highwire.memcached;

/** A piece of the store's memory that belongs to one class of chunks at a time. */
final class Page {
    final long at;
    /** The class whose chunks it has; null while it has none. */
    SlabClass owner;
    /** Counts its owners: a chunk that was given back under an earlier one is not there any more. */
    int generation;
    /** Chunks with a record. */
    int live;
    /** The first chunk that was never used since the page has its owner. */
    long fresh;

    Page(long at) {
        this.at = at;
    }
}

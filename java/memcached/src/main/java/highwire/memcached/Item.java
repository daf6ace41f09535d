package highwire.memcached;

/** What the server itself remembers of a record. */
final class Item {
    final byte[] key;
    final long hash;
    /** Where its record lies, and in a chunk of which class. */
    long at;
    SlabClass slab;
    /** Its place in the published bucket; negative if that was full. */
    int slot = -1;
    int flags;
    long expiry;
    long cas;
    int length;
    long accessed;
    boolean wasFetched;
    /** Marked by the meta protocol: to be fetched anew by the client that is told first. */
    boolean isStale;
    boolean isWon;
    /** Neighbours in the order of last use. */
    Item older;
    Item newer;

    Item(byte[] key) {
        this.key = key;
        this.hash = Record.hash(key);
    }

    boolean isExpired(long now) {
        return expiry != 0 && expiry <= now;
    }
}

package highwire.memcached;

/** The server's own data about a record. */
final class Item {
    final byte[] key;
    final long hash;
    /** The place of its record, and the class of its chunk. */
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
    /** Marked by the meta protocol: the first client that hears of it must fetch it anew. */
    boolean isStale;
    boolean isWon;
    /** Whether it was stored under a key in base 64, in which the meta protocol names it since. */
    boolean isBinaryKey;
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

package highwire.memcached;

/**
 * How large a store is.
 *
 * @param bytes memory for index and records
 * @param itemBytes the largest record, key and what surrounds it included; a multiple of 64 up to a megabyte
 * @param restMillis how long a chunk rests before it is used again, if there is another
 */
public record StoreOptions(long bytes, int itemBytes, int restMillis) {
    /** As memcached: 64 megabytes, records of up to one. */
    public static final StoreOptions DEFAULT = new StoreOptions(64L << 20, 1 << 20, 10);

    /** Checks the numbers. */
    public StoreOptions {
        if (itemBytes < 1024 || itemBytes > 1 << 20 || itemBytes % 64 != 0) {
            throw new IllegalArgumentException("records of " + itemBytes + " bytes: a multiple of 64 from 1024 to 1048576");
        }
        if (bytes < 4L * itemBytes || bytes > 1L << 40) {
            throw new IllegalArgumentException(bytes + " bytes hold no store of records of " + itemBytes);
        }
        if (restMillis < 0) {
            throw new IllegalArgumentException("chunks cannot rest for " + restMillis + " ms");
        }
    }

    /**
     * Options for a store that has as much memory for its records, and what its index needs in addition.
     *
     * @param bytes memory for records
     * @param itemBytes the largest record
     * @return the options, with the usual rest
     */
    public static StoreOptions forRecords(long bytes, int itemBytes) {
        long whole = bytes;
        for (int i = 0; i < 3; i++) {
            int bits = 63 - Long.numberOfLeadingZeros(Math.max(1, whole / 2048));
            whole = bytes + ((long) Index.BUCKET_BYTES << bits);
        }
        return new StoreOptions(whole, itemBytes, DEFAULT.restMillis());
    }

    /** Buckets of the index, as a power of two: one for each 2 KiB of memory, 7 keys each. */
    int bucketBits() {
        return 63 - Long.numberOfLeadingZeros(bytes / 2048);
    }
}

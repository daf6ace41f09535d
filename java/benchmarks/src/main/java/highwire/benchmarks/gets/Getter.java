package highwire.benchmarks.gets;

/** A client of a memcached. One thread uses it. */
interface Getter extends AutoCloseable {
    /**
     * Gets a value.
     *
     * @param key of it
     * @return the value; null if there is none
     * @throws Exception the server has gone
     */
    byte[] get(String key) throws Exception;
}

/**
 * A memcached server that speaks the text, meta and binary protocols over TCP, and a client that gets values
 * of the same store by one-sided READs.
 *
 * <p>{@link highwire.memcached.MemcachedServer} serves, {@link highwire.memcached.MemcachedClient} asks.
 */
package highwire.memcached;

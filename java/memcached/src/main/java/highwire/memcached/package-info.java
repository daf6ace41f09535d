/**
 * A memcached server that speaks the text, meta and binary protocols over TCP, and a client that gets what the same store holds by one-sided READs.
 *
 * <p>{@link highwire.memcached.MemcachedServer} serves, {@link highwire.memcached.MemcachedClient} asks.
 */
package highwire.memcached;

package highwire.memcached;

/**
 * A key's value.
 *
 * @param bytes the value
 * @param flags what the client stored with it
 * @param cas its unique number, which changes with every change
 */
public record Value(byte[] bytes, int flags, long cas) {}

package highwire.memcached;

/**
 * What a key stands for.
 *
 * @param bytes the value
 * @param flags what the client stored with it
 * @param cas its unique number, which changes with every change
 */
public record Value(byte[] bytes, int flags, long cas) {}

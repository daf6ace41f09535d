package highwire.rpc;

/**
 * A server's offer.
 *
 * @param mode how both ends wait
 * @param slots calls of one client that may be in flight, a power of two
 * @param slotBytes room of a call and of an answer, header included; a multiple of 64
 */
public record RpcOptions(RpcMode mode, int slots, int slotBytes) {
    /** Sixteen calls of up to four kilobytes, polled. */
    public static final RpcOptions DEFAULT = new RpcOptions(RpcMode.POLLING, 16, 4096);

    /** Checks the numbers. */
    public RpcOptions {
        if (slots < 1 || slots > 1024 || Integer.bitCount(slots) != 1) {
            throw new IllegalArgumentException(slots + " slots: a power of two up to 1024");
        }
        if (slotBytes < 64 || slotBytes > 1 << 20 || slotBytes % 64 != 0) {
            throw new IllegalArgumentException("slots of " + slotBytes + " bytes: a multiple of 64 up to a megabyte");
        }
    }

    /** {@return the most bytes of arguments or of an answer} */
    public int maxBytes() {
        return slotBytes - Slots.HEADER_BYTES;
    }
}

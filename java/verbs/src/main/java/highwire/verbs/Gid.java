package highwire.verbs;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** An address as the two words that the engine's memory has: IPv4 is mapped into IPv6 (RoCEv2 A17.4.1.2). */
record Gid(long low, long high) {
    static Gid of(InetAddress address) {
        byte[] bytes = address.getAddress();
        byte[] gid = new byte[16];
        System.arraycopy(bytes, 0, gid, 16 - bytes.length, bytes.length);
        if (bytes.length == 4) {
            gid[10] = (byte) 0xFF;
            gid[11] = (byte) 0xFF;
        }
        ByteBuffer words = ByteBuffer.wrap(gid).order(ByteOrder.LITTLE_ENDIAN);
        return new Gid(words.getLong(0), words.getLong(8));
    }

    InetAddress address() {
        ByteBuffer gid = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN).putLong(0, low).putLong(8, high);
        try {
            return InetAddress.getByAddress(gid.array());
        } catch (UnknownHostException e) {
            throw new AssertionError("sixteen bytes are an address", e);
        }
    }
}

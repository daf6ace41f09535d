package highwire.netty;

import java.nio.ByteBuffer;

/**
 * The datagrams by which a client learns whether a TCP port has Highwire, before it connects: one to the UDP port of the same number, and one back. A peer without Highwire
 * sees nothing on its TCP port that plain TCP would not bring.
 *
 * <pre>
 *  0 +-----------+-------------+----------+-----------------+------------------+
 *    | magic u32 | version u16 | kind u16 | nonce, 16 bytes | client's port u16|   big-endian
 *    +-----------+-------------+----------+-----------------+------------------+
 * </pre>
 *
 * <p>The port is the one from which the client will connect: the server introduces itself on that connection and on no other. Questions and answers have the same length.
 */
final class Probe {
    static final int BYTES = 26;
    static final int VERSION = 1;
    static final int QUESTION = 1;
    static final int YES = 2;
    static final int NO = 3;
    /** The server accepts no connection until its program wants one. */
    static final int NOT_NOW = 4;
    /** {@code HwNt}. */
    private static final int MAGIC = 0x48774E74;

    final int version;
    final int kind;
    final byte[] nonce;
    final int port;

    Probe(int kind, byte[] nonce, int port) {
        this(VERSION, kind, nonce, port);
    }

    private Probe(int version, int kind, byte[] nonce, int port) {
        this.version = version;
        this.kind = kind;
        this.nonce = nonce;
        this.port = port;
    }

    /** Reads a datagram; null if it is none of these. */
    static Probe parse(ByteBuffer datagram) {
        if (datagram.remaining() != BYTES || datagram.getInt() != MAGIC) {
            return null;
        }
        int version = Short.toUnsignedInt(datagram.getShort());
        int kind = Short.toUnsignedInt(datagram.getShort());
        byte[] nonce = new byte[Greeting.NONCE_BYTES];
        datagram.get(nonce);
        return new Probe(version, kind, nonce, Short.toUnsignedInt(datagram.getShort()));
    }

    ByteBuffer bytes() {
        return ByteBuffer.allocate(BYTES).putInt(MAGIC).putShort((short) VERSION).putShort((short) kind).put(nonce).putShort((short) port).flip();
    }
}

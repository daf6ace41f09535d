package highwire.benchmarks.gets;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/** The text protocol written by hand over a socket channel: about the least that a GET over TCP can take in Java. Values have one length. */
final class TextGetter implements Getter {
    private final SocketChannel channel;
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(4096);
    private final int valueBytes;

    TextGetter(InetSocketAddress server, int valueBytes, boolean polls) throws IOException {
        this.valueBytes = valueBytes;
        channel = SocketChannel.open(server);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true).configureBlocking(!polls);
    }

    /** Stores a value, and waits for the answer. */
    void set(String key, byte[] value) throws IOException {
        send("set " + key + " 0 0 " + value.length + "\r\n" + new String(value, StandardCharsets.ISO_8859_1) + "\r\n");
        String answer = answer("\r\n");
        if (!answer.equals("STORED\r\n")) {
            throw new IOException("the server answers `" + answer.strip() + "`");
        }
    }

    @Override
    public byte[] get(String key) throws IOException {
        send("get " + key + "\r\n");
        receiveTo("END\r\n");
        byte[] value = new byte[valueBytes];
        int at = buffer.position() - "\r\nEND\r\n".length() - valueBytes;
        if (at <= 0) {
            return null;
        }
        buffer.get(at, value);
        return value;
    }

    private void send(String command) throws IOException {
        buffer.clear().put(command.getBytes(StandardCharsets.ISO_8859_1)).flip();
        while (buffer.hasRemaining()) {
            channel.write(buffer);
        }
        buffer.clear();
    }

    private String answer(String end) throws IOException {
        receiveTo(end);
        byte[] answer = new byte[buffer.position()];
        buffer.get(0, answer);
        return new String(answer, StandardCharsets.ISO_8859_1);
    }

    private void receiveTo(String end) throws IOException {
        while (!endsWith(end)) {
            int count = channel.read(buffer);
            if (count < 0) {
                throw new EOFException("the server was closed");
            }
            if (count == 0) {
                Thread.onSpinWait();
            }
        }
    }

    private boolean endsWith(String end) {
        int at = buffer.position() - end.length();
        for (int i = 0; at >= 0 && i < end.length(); i++) {
            if (buffer.get(at + i) != end.charAt(i)) {
                return false;
            }
        }
        return at >= 0;
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}

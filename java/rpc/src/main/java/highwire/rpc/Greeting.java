package highwire.rpc;

import highwire.verbs.Timeouts;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** How two ends find each other: lines over a TCP connection, which stays open as a sign of life. */
final class Greeting {
    static final String VERSION = "jvrpc 1";
    private static final int LINE_MAX = 512;

    private Greeting() {}

    static void say(Socket socket, String line) throws IOException {
        socket.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
        socket.getOutputStream().flush();
    }

    /** The peer's next line, which must be whole when the time is over, however slowly it comes. */
    static String hear(Socket socket, Duration timeout) throws IOException {
        StringBuilder line = new StringBuilder();
        long deadline = System.nanoTime() + Timeouts.nanos(timeout);
        while (true) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                throw new SocketTimeoutException("the peer's line was not whole in time");
            }
            socket.setSoTimeout(Timeouts.socketMillis(Duration.ofNanos(left)));
            int next = socket.getInputStream().read();
            if (next < 0) {
                throw new RpcClosedException("the peer hung up" + (line.isEmpty() ? "" : " after `" + line + "`"));
            }
            if (next == '\n') {
                return line.toString();
            }
            if (line.append((char) next).length() > LINE_MAX) {
                throw new RpcClosedException("what listens there does not speak jvRPC");
            }
        }
    }

    /** A server's offer, from its first line. */
    static RpcOptions offer(String line) throws RpcClosedException {
        String[] words = line.split(" ");
        try {
            if (line.startsWith(VERSION + " ") && words.length == 5) {
                return new RpcOptions(RpcMode.valueOf(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            }
        } catch (IllegalArgumentException e) {
            throw new RpcClosedException("the server offers `" + line + "`", e);
        }
        throw new RpcClosedException("the server says `" + line + "`; this client speaks " + VERSION);
    }

    static String offer(RpcOptions options) {
        return VERSION + " " + options.mode() + " " + options.slots() + " " + options.slotBytes();
    }

    /** From here on the connection is only a sign of life, and no thread waits for it. */
    static void leaveOpen(SocketChannel channel) throws IOException {
        channel.configureBlocking(false);
    }

    /** Whether the other end still holds its connection. */
    static boolean isAlive(SocketChannel channel, ByteBuffer scratch) {
        try {
            return channel.read(scratch.clear()) >= 0;
        } catch (IOException e) {
            return false;
        }
    }
}

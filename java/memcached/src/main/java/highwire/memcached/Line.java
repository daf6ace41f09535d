package highwire.memcached;

import highwire.verbs.Timeouts;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * The client's TCP connection, in the text protocol: the introduction, the sign of life, and values that are
 * too large for a call.
 */
final class Line implements AutoCloseable {
    private static final int LINE_MAX = 1024;

    private final Socket socket = new Socket();
    private final InputStream in;
    private final OutputStream out;

    Line(InetSocketAddress server, Duration timeout) throws MemcachedException {
        try {
            socket.connect(server, Timeouts.socketMillis(timeout));
            socket.setSoTimeout(Timeouts.socketMillis(timeout));
            socket.setTcpNoDelay(true);
            in = new BufferedInputStream(socket.getInputStream());
            out = new BufferedOutputStream(socket.getOutputStream());
        } catch (IOException e) {
            close();
            throw new MemcachedException("no memcached at " + server + ": " + e.getMessage(), e);
        }
    }

    /** Sends a command, and its value if it has one; returns the first line of the answer. */
    String ask(byte[] command, byte[] value) throws MemcachedException {
        try {
            out.write(command);
            out.write('\r');
            out.write('\n');
            if (value != null) {
                out.write(value);
                out.write('\r');
                out.write('\n');
            }
            out.flush();
            return hear();
        } catch (IOException e) {
            throw gone(e);
        }
    }

    /** Asks for a key's value; null if it has none. */
    Value get(byte[] key) throws MemcachedException {
        byte[] command = new byte[key.length + 5];
        System.arraycopy(Session.bytes("gets "), 0, command, 0, 5);
        System.arraycopy(key, 0, command, 5, key.length);
        String[] words = ask(command, null).split(" ");
        if (words[0].equals("END")) {
            return null;
        }
        try {
            if (!words[0].equals("VALUE") || words.length != 5) {
                throw new MemcachedException("the server answers `" + String.join(" ", words) + "`");
            }
            byte[] value = in.readNBytes(Integer.parseInt(words[3]));
            hear();
            hear();
            return new Value(value, Integer.parseUnsignedInt(words[2]), Long.parseUnsignedLong(words[4]));
        } catch (NumberFormatException | IOException e) {
            throw gone(e);
        }
    }

    private String hear() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next != '\n'; next = in.read()) {
            if (next < 0 || line.length() > LINE_MAX) {
                throw new IOException(next < 0 ? "it hung up" : "it does not speak memcached's protocol");
            }
            line.append((char) next);
        }
        return line.toString().stripTrailing();
    }

    private MemcachedException gone(Exception why) {
        // From now on the client would take the server's words for the answer to another command.
        close();
        return why instanceof MemcachedException known ? known : new MemcachedException("the server has gone: " + why.getMessage(), why);
    }

    static byte[] command(String before, byte[] key, String behind) {
        byte[] start = before.getBytes(StandardCharsets.ISO_8859_1);
        byte[] end = behind.getBytes(StandardCharsets.ISO_8859_1);
        byte[] command = new byte[start.length + key.length + end.length];
        System.arraycopy(start, 0, command, 0, start.length);
        System.arraycopy(key, 0, command, start.length, key.length);
        System.arraycopy(end, 0, command, start.length + key.length, end.length);
        return command;
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }
}

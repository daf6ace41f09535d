package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** What one client does to the others, and to the server. */
class ServerTest {
    private static final StoreOptions LARGE = StoreOptions.forRecords(64L << 20, 1 << 20);
    private static final int PATIENCE_MILLIS = 120_000;

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static Socket connect(MemcachedServer server) throws IOException {
        Socket socket = new Socket(server.address().getAddress(), server.address().getPort());
        socket.setSoTimeout(PATIENCE_MILLIS);
        return socket;
    }

    private static String ask(Socket socket, String line) throws IOException {
        socket.getOutputStream().write(bytes(line + "\r\n"));
        StringBuilder answer = new StringBuilder();
        for (int next = socket.getInputStream().read(); next != '\n'; next = socket.getInputStream().read()) {
            if (next < 0) {
                return "(hung up)";
            }
            answer.append((char) next);
        }
        return answer.toString().strip();
    }

    private static void put(MemcachedServer server, String key, int length) {
        assertEquals(Outcome.STORED, server.store.store(Mode.SET, bytes(key), 0, 0, new byte[length], 0).outcome());
    }

    @Test
    void whateverAHandlerThrowsEndsItsConversationAlone() throws Exception {
        Throwable[] thrown = {new NullPointerException("planted"), new AssertionError("planted"), new OutOfMemoryError("planted"),
            new StackOverflowError("planted"), new ArithmeticException("planted")};
        AtomicReference<Throwable> next = new AtomicReference<>();
        Thread tester = Thread.currentThread();
        try (MemcachedServer server = MemcachedServer.open(Engine.ANY, LARGE, () -> {
            // The store looks at its clock within the command that asks for a key.
            boolean isInCommand = StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getMethodName().equals("peek")));
            Throwable planted = Thread.currentThread() != tester && isInCommand ? next.getAndSet(null) : null;
            if (planted != null) {
                ServerTest.<RuntimeException>raise(planted);
            }
            return System.currentTimeMillis();
        }); Socket other = connect(server)) {
            put(server, "k", 3);
            for (int i = 0; i < thrown.length; i++) {
                try (Socket socket = connect(server)) {
                    assertEquals("MN", ask(socket, "mn"));
                    next.set(thrown[i]);
                    assertEquals("(hung up)", ask(socket, "mg k s"));
                }
                assertEquals("HD s3", ask(other, "mg k s"), "the cache and the other client are there");
                assertEquals(i + 1, server.store.counters.get(Counter.handler_faults));
            }
            assertEquals("STAT handler_faults " + thrown.length, statistic(other, "handler_faults"));
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void raise(Throwable thrown) throws T {
        throw (T) thrown;
    }

    private static String statistic(Socket socket, String name) throws IOException {
        String found = "";
        for (String line = ask(socket, "stats"); !line.equals("END"); line = new String(readLine(socket), StandardCharsets.ISO_8859_1)) {
            found = line.startsWith("STAT " + name + " ") ? line : found;
        }
        return found;
    }

    private static byte[] readLine(Socket socket) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = socket.getInputStream().read(); next != '\n'; next = socket.getInputStream().read()) {
            if (next != '\r') {
                line.write(next);
            }
        }
        return line.toByteArray();
    }

    private static void expectValues(DataInputStream in, int count, String key, int length) throws IOException {
        byte[] head = bytes("VALUE " + key + " 0 " + length + "\r\n");
        for (int i = 0; i < count; i++) {
            assertEquals(new String(head, StandardCharsets.ISO_8859_1), new String(in.readNBytes(head.length), StandardCharsets.ISO_8859_1));
            in.skipNBytes(length);
            assertEquals("\r\n", new String(in.readNBytes(2), StandardCharsets.ISO_8859_1));
        }
    }

    @Test
    void aClientThatAsksForMuchAndTakesNothingHindersNobody() throws Exception {
        try (MemcachedServer server = MemcachedServer.open(Engine.ANY, LARGE); Socket greedy = connect(server); Socket other = connect(server)) {
            int length = 1_000_000;
            int count = 2200;
            put(server, "k", length);
            greedy.getOutputStream().write(bytes("get" + " k".repeat(count) + "\r\n"));
            for (int i = 0; i < 200; i++) {
                assertEquals("HD s" + length, ask(other, "mg k s"));
            }
            assertTrue(server.held() < 8 << 20, "bytes held for two clients: " + server.held());
            DataInputStream in = new DataInputStream(greedy.getInputStream());
            expectValues(in, count, "k", length);
            assertEquals("END\r\n", new String(in.readNBytes(5), StandardCharsets.ISO_8859_1));
            assertEquals("MN", ask(greedy, "mn"), "the conversation goes on");
            assertEquals(0, server.store.counters.get(Counter.handler_faults));
        }
    }

    @Test
    void manyCommandsWithLargeAnswersAreAllAnswered() throws Exception {
        try (MemcachedServer server = MemcachedServer.open(Engine.ANY, LARGE); Socket socket = connect(server)) {
            int length = 900_000;
            put(server, "k", length);
            socket.getOutputStream().write(bytes("get k\r\n".repeat(40) + "mn\r\n"));
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int i = 0; i < 40; i++) {
                expectValues(in, 1, "k", length);
                assertEquals("END\r\n", new String(in.readNBytes(5), StandardCharsets.ISO_8859_1));
            }
            assertEquals("MN\r\n", new String(in.readNBytes(4), StandardCharsets.ISO_8859_1));
        }
    }

    @Test
    void manyBinaryRequestsWithLargeAnswersAreAllAnswered() throws Exception {
        try (MemcachedServer server = MemcachedServer.open(Engine.ANY, LARGE); Socket socket = connect(server)) {
            int length = 900_000;
            put(server, "k", length);
            byte[] get = ByteBuffer.allocate(25).put((byte) 0x80).put((byte) 0).putShort((short) 1).putInt(0).putInt(1).putInt(0).putLong(0).put((byte) 'k').array();
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            for (int i = 0; i < 40; i++) {
                all.writeBytes(get);
            }
            socket.getOutputStream().write(all.toByteArray());
            // The client says that it will ask nothing more: what it has asked is answered all the same.
            socket.shutdownOutput();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int i = 0; i < 40; i++) {
                in.skipNBytes(24 + 4 + length);
            }
            assertEquals(-1, in.read());
        }
    }

    @Test
    void aSessionHoldsABoundedNumberOfBytesHoweverLittleTheClientTakes() throws Exception {
        Store store = new Store(LARGE, Arena.ofAuto().allocate(LARGE.bytes(), 64), System::currentTimeMillis);
        store.store(Mode.SET, bytes("k"), 0, 0, new byte[1_000_000], 0);
        Session session = new Session(store, null);
        byte[] line = bytes("get" + " k".repeat(400) + "\r\n");
        session.room().put(line);
        session.received();
        long most = 0;
        long taken = 0;
        byte[] sip = new byte[10_000];
        while (session.isPaused() || session.output.pending() > 0) {
            most = Math.max(most, session.held());
            taken += session.output.flush(Channels.newChannel(new java.io.OutputStream() {
                private int left = sip.length;

                @Override
                public void write(int one) {
                    left--;
                }

                @Override
                public void write(byte[] from, int at, int length) {
                    left -= length;
                }
            }));
            session.proceed();
        }
        assertEquals(400L * (1_000_000 + "VALUE k 0 1000000\r\n\r\n".length()) + "END\r\n".length(), taken);
        assertTrue(most < 2 << 20, most + " bytes");
    }
}

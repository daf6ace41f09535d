package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/**
 * The same commands to memcached in C and to this server: the same answers.
 *
 * <p>{@code -Dhighwire.memcached.commands} says how many, {@code -Dhighwire.memcached.seed} which; {@code cargo xtask java memcached-fuzz} sets both.
 */
class OracleTest {
    private static final int PATIENCE_MILLIS = 120_000;
    private static final long COMMANDS = Long.getLong("highwire.memcached.commands", 20_000);
    private static final long SEED = Long.getLong("highwire.memcached.seed", 1);
    /** What depends on the clock, on the sizes of chunks, or on the release. */
    private static final Pattern LOOSE = Pattern.compile("(?<= )(t|l|la=|exp=|cls=|size=)(-?\\d+)(?=[ \\r])");
    private static final Pattern CAS = Pattern.compile("(?m)^VALUE \\S+ \\d+ \\d+ (\\d+)\\r$");
    private static final String BINARY_VERSION = "\u0081\u000b" + "\0".repeat(9);
    private static final long NEAR_SECONDS = 5;

    /** One conversation; returns everything that was answered. */
    static byte[] converse(InetSocketAddress address, byte[] batch) throws Exception {
        Socket socket = new Socket();
        try {
            socket.connect(address, PATIENCE_MILLIS);
            socket.setSoTimeout(PATIENCE_MILLIS);
            socket.setTcpNoDelay(true);
            Thread writer = Thread.startVirtualThread(() -> {
                try {
                    OutputStream out = socket.getOutputStream();
                    out.write(batch);
                    socket.shutdownOutput();
                } catch (IOException e) {
                    // The server has hung up, as it should after some requests.
                }
            });
            byte[] answers;
            try {
                answers = socket.getInputStream().readAllBytes();
            } catch (java.net.SocketException e) {
                // It has hung up with a part of the batch unread.
                answers = null;
            }
            // A writer whose server reads no more hears of it.
            socket.close();
            writer.join();
            return answers;
        } finally {
            socket.close();
        }
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "(reset)" : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static String loose(String answers) {
        // A binary answer has its length in its header.
        String known = answers.replace(BINARY_VERSION + "\u000f", BINARY_VERSION + "\u0006").replace(TextProtocol.VERSION, "1.6.18");
        return LOOSE.matcher(known).replaceAll("$1~");
    }

    /** Whether numbers that depend on the clock are nearly the same. */
    private static boolean areNear(String ours, String theirs) {
        Matcher mine = LOOSE.matcher(ours);
        Matcher other = LOOSE.matcher(theirs);
        while (mine.find() && other.find()) {
            String name = mine.group(1);
            long a = Long.parseLong(mine.group(2));
            long b = Long.parseLong(other.group(2));
            boolean arePast = name.equals("t") && a > Integer.MAX_VALUE && b > Integer.MAX_VALUE;
            boolean matters = name.equals("t") || name.equals("exp=");
            if (matters && !arePast && Math.abs(a - b) > NEAR_SECONDS) {
                return false;
            }
        }
        return true;
    }

    private static String shown(byte[] bytes) {
        StringBuilder shown = new StringBuilder();
        for (byte one : bytes.length > 6000 ? Arrays.copyOf(bytes, 6000) : bytes) {
            int letter = one & 0xFF;
            shown.append(letter == '\n' ? "\\n\n" : letter == '\r' ? "\\r" : letter < ' ' || letter > 126 ? String.format("\\x%02x", letter) : (char) letter);
        }
        return shown.toString();
    }

    private static String difference(String ours, String theirs) {
        int at = 0;
        while (at < Math.min(ours.length(), theirs.length()) && ours.charAt(at) == theirs.charAt(at)) {
            at++;
        }
        int from = Math.max(0, at - 200);
        return "ours:\n" + shown(Session.bytes(ours.substring(from, Math.min(ours.length(), at + 200))))
                + "\nmemcached's:\n" + shown(Session.bytes(theirs.substring(from, Math.min(theirs.length(), at + 200))));
    }

    /** Threads of memcached in C tidy up by the clock, and it reads a number beyond its value's end: a fault of ours is there again. */
    @Test
    void answersAreThoseOfMemcached() throws Exception {
        try {
            play();
        } catch (AssertionError difference) {
            System.out.println("played again after " + difference.getMessage());
            play();
        }
    }

    private static void play() throws Exception {
        StoreOptions options = StoreOptions.forRecords(256L << 20, 1 << 20);
        try (Oracle oracle = new Oracle(); MemcachedServer server = MemcachedServer.open(Engine.ANY, options)) {
            SplittableRandom random = new SplittableRandom(SEED);
            TextBatches texts = new TextBatches(random.split());
            BinaryBatches binaries = new BinaryBatches(random.split());
            long commands = 0;
            long told = 0;
            String before = "";
            for (long batch = 0; commands < COMMANDS; batch++) {
                boolean isBinary = random.nextInt(3) == 0;
                byte[] bytes = isBinary ? binaries.next() : texts.next();
                commands += isBinary ? binaries.commands : texts.commands;
                String theirs = text(converse(oracle.address, bytes));
                String ours = text(converse(server.address(), bytes));
                String where = "batch " + batch + " of seed " + SEED + ":\n";
                assertTrue(oracle.isAlive(), () -> where + "memcached in C has ended after\n" + shown(bytes));
                if (!isBinary && loose(ours).equals(loose(theirs)) && !areNear(ours, theirs)) {
                    throw new AssertionError(where + "a time differs\nours:\n" + shown(Session.bytes(ours)) + "memcached's:\n" + shown(Session.bytes(theirs)));
                }
                if (!loose(ours).equals(loose(theirs))) {
                    throw new AssertionError(where + difference(loose(ours), loose(theirs)) + "\nto\n" + shown(bytes)
                            + "\nafter\n" + shown(Session.bytes(before)));
                }
                Matcher numbers = CAS.matcher(isBinary ? "" : theirs);
                while (numbers.find()) {
                    texts.casSeen(Long.parseUnsignedLong(numbers.group(1)));
                    binaries.casSeen(Long.parseUnsignedLong(numbers.group(1)));
                }
                before = theirs.substring(Math.max(0, theirs.length() - 4000));
                if (commands - told >= 100_000) {
                    told = commands;
                    System.out.println(commands + " commands in " + (batch + 1) + " conversations");
                }
            }
            Counters counters = server.store.counters;
            assertEquals(0, counters.get(Counter.handler_faults), "no handler failed");
            assertEquals(0, counters.get(Counter.evictions), "nothing was evicted, which would hide a difference");
        }
    }
}

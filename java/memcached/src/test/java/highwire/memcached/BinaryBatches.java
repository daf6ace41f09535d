package highwire.memcached;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/** Pipelines of binary requests, well-formed or not, from a seed; with the precautions of {@link TextBatches}. */
final class BinaryBatches {
    private static final int[] TIMES = {0, 0, 0, 10_000, 100_000, 2_592_000, 2_592_001, Integer.MAX_VALUE, Integer.MIN_VALUE, -2, -1};
    private static final byte[] NOTHING = {};
    private static final int NOOP = 0x0a;
    /** Keeps the byte of a minus out of flags, which memcached stores as they are. */
    private static final int NO_MINUS = 0xDFDFDFDF;

    private final SplittableRandom random;
    private final List<Long> casPool = new ArrayList<>(List.of(1L, 2L));
    private final List<byte[]> large = new ArrayList<>();
    private ByteArrayOutputStream out;
    int commands;

    BinaryBatches(SplittableRandom random) {
        this.random = random;
    }

    void casSeen(long cas) {
        if (casPool.size() == 24) {
            casPool.removeFirst();
        }
        casPool.add(cas);
    }

    byte[] next() {
        out = new ByteArrayOutputStream();
        commands = 0;
        for (int i = random.nextInt(60); i >= 0; i--) {
            commands++;
            command();
        }
        if (random.nextInt(8) == 0) {
            // The last bytes of a conversation, as for text.
            malformed();
            return out.toByteArray();
        }
        say(NOOP, 0, NOTHING, NOTHING, NOTHING);
        for (String key : TextBatches.KEYS) {
            say(0x0c, 0, NOTHING, key.getBytes(StandardCharsets.ISO_8859_1), NOTHING);
        }
        // Values of a megabyte in every conversation would make them slow.
        for (byte[] key : large) {
            say(0x04, 0, NOTHING, key, NOTHING);
        }
        large.clear();
        byte[] all = out.toByteArray();
        return random.nextInt(20) == 0 ? Arrays.copyOf(all, all.length - random.nextInt(Math.min(60, all.length))) : all;
    }

    private void say(int opcode, long cas, byte[] extras, byte[] key, byte[] value) {
        int body = extras.length + key.length + value.length;
        out.writeBytes(ByteBuffer.allocate(24 + body).put((byte) 0x80).put((byte) opcode).putShort((short) key.length).put((byte) extras.length)
                .put((byte) 0).putShort((short) 0).putInt(body).putInt(random.nextInt()).putLong(cas).put(extras).put(key).put(value).array());
    }

    private long cas() {
        return switch (random.nextInt(5)) {
            case 0, 1, 2 -> 0;
            case 3 -> casPool.get(random.nextInt(casPool.size()));
            default -> random.nextInt(3) - 1;
        };
    }

    private int time() {
        return TIMES[random.nextInt(TIMES.length)];
    }

    private byte[] value() {
        String[] some = {"", "1", "99", "10000", "007", "x", " 5", "18446744073709551615", "\r\nx", "long".repeat(50), "w".repeat(9000)};
        int length = random.nextInt(500);
        byte[] large = new byte[length == 0 ? 1_100_000 : length == 1 ? 700_000 : length == 2 ? 120_000 : 0];
        Arrays.fill(large, (byte) 'z');
        return large.length > 0 ? large : some[random.nextInt(some.length)].getBytes(StandardCharsets.ISO_8859_1);
    }

    private void command() {
        int quiet = random.nextInt(3) == 0 ? 1 : 0;
        byte[] key = TextBatches.KEYS[random.nextInt(TextBatches.KEYS.length)].getBytes(StandardCharsets.ISO_8859_1);
        byte[] number = ("n" + (1 + random.nextInt(3))).getBytes(StandardCharsets.ISO_8859_1);
        switch (random.nextInt(12)) {
            case 0, 1, 2 -> {
                byte[] value = value();
                if (value.length > 100_000) {
                    large.add(key);
                }
                say(1 + random.nextInt(3) + 0x10 * quiet, cas(), ByteBuffer.allocate(8).putInt(random.nextInt() & NO_MINUS).putInt(time()).array(), key, value);
            }
            case 3 -> {
                byte[] value = value();
                say(0x0e + random.nextInt(2) + 0x0b * quiet, cas(), NOTHING, key, value.length > 100_000 ? key : value);
            }
            case 4, 5 -> say(random.nextBoolean() ? 0x00 + 9 * quiet : 0x0c + quiet, 0, NOTHING, key, NOTHING);
            case 6 -> say(0x04 + 0x10 * quiet, cas(), NOTHING, key, NOTHING);
            case 7, 8 -> {
                say(NOOP, 0, NOTHING, NOTHING, NOTHING);
                long delta = random.nextInt(4) == 0 ? random.nextLong() : random.nextInt(200);
                long first = random.nextInt(4) == 0 ? random.nextLong() : random.nextInt(2000);
                say(0x05 + random.nextInt(2) + 0x10 * quiet, cas(), ByteBuffer.allocate(20).putLong(delta).putLong(first).putInt(time()).array(),
                        random.nextInt(4) == 0 ? key : number, NOTHING);
            }
            case 9 -> say(new int[] {0x1c, 0x1d, 0x1e, 0x23, 0x24}[random.nextInt(5)], 0, ByteBuffer.allocate(4).putInt(time()).array(), key, NOTHING);
            case 10 -> say(random.nextBoolean() ? 0x0b : NOOP, 0, NOTHING, NOTHING, NOTHING);
            default -> {
                if (random.nextInt(5) == 0) {
                    say(0x08 + 0x10 * quiet, 0, random.nextBoolean() ? NOTHING : new byte[4], NOTHING, NOTHING);
                } else {
                    say(new int[] {0x1b, 0x1f, 0x20, 0x30, 0x77, 0xff}[random.nextInt(6)], 0, NOTHING, NOTHING, NOTHING);
                }
            }
        }
    }

    /** A request that memcached refuses, and then hangs up. */
    private void malformed() {
        byte[] key = {'k'};
        say(NOOP, 0, NOTHING, NOTHING, NOTHING);
        switch (random.nextInt(9)) {
            case 0 -> out.writeBytes(new byte[] {'g', 'e', 't', ' ', 'k', '\r', '\n', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
            case 1 -> say(0x00, 0, NOTHING, new byte[300], NOTHING);
            case 2 -> say(0x01, 0, new byte[7], key, key);
            case 3 -> say(0x05, 0, new byte[19], key, NOTHING);
            case 4 -> say(0x00, 0, NOTHING, NOTHING, NOTHING);
            case 5 -> say(NOOP, 0, NOTHING, key, NOTHING);
            case 6 -> say(0x08, 0, new byte[3], NOTHING, NOTHING);
            case 7 -> out.writeBytes(ByteBuffer.allocate(24 + 9).put((byte) 0x80).put((byte) 0).putShort((short) 5).put((byte) 4).put((byte) 0)
                    .putShort((short) 0).putInt(3).putInt(1).putLong(0).array());
            default -> say(random.nextBoolean() ? 0x07 : 0x17, 0, NOTHING, random.nextBoolean() ? NOTHING : key, NOTHING);
        }
    }
}

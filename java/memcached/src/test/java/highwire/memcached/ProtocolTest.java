package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.SplittableRandom;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.Test;

/** Conversations without a network: input, whole or byte by byte, and the answers. */
class ProtocolTest {
    private static final Session.Server ALONE = new Session.Server() {
        @Override
        public String admit(Session session, String introduction) {
            return "SERVER_ERROR no engine";
        }

        @Override
        public void stats(BiConsumer<String, Object> visitor) {
            visitor.accept("pid", 1);
        }
    };

    private long now = 1_700_000_000_000L;
    private final Store store =
            new Store(new StoreOptions(1 << 20, 1 << 14, 0), Arena.ofAuto().allocate(1 << 20, 64), () -> now);
    private Session session = new Session(store, ALONE);

    private byte[] say(byte[] bytes, int atOnce) throws IOException {
        for (int from = 0; from < bytes.length; from += atOnce) {
            int until = Math.min(bytes.length, from + atOnce);
            for (int at = from; at < until;) {
                ByteBuffer room = session.room();
                int some = Math.min(room.remaining(), until - at);
                room.put(bytes, at, some);
                at += some;
                session.received();
            }
        }
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        session.output.flush(Channels.newChannel(said));
        return said.toByteArray();
    }

    /** Sends lines, separated by `|`; returns the answers, in the same form. */
    private String say(String lines) throws IOException {
        byte[] bytes = (lines.replace("|", "\r\n") + "\r\n").getBytes(StandardCharsets.ISO_8859_1);
        String said = new String(say(bytes, bytes.length), StandardCharsets.ISO_8859_1);
        return said.replace("\r\n", "|").replaceAll("\\|$", "");
    }

    private void expect(String lines, String answers) throws IOException {
        assertEquals(answers, say(lines), lines);
    }

    @Test
    void theTextProtocolSaysWhatMemcachedSays() throws IOException {
        expect("set k 7 0 1|v", "STORED");
        expect("get k nobody k", "VALUE k 7 1|v|VALUE k 7 1|v|END");
        expect("gets k", "VALUE k 7 1 1|v|END");
        expect("cas k 0 0 1 1|w", "STORED");
        expect("cas k 0 0 1 1|x", "EXISTS");
        expect("cas nobody 0 0 1 1|x", "NOT_FOUND");
        expect("cas k 0 0 1 0|x", "EXISTS");
        expect("add k 0 0 1|x|replace nobody 0 0 1|x|append nobody 0 0 1|x", "NOT_STORED|NOT_STORED|NOT_STORED");
        expect("append k 9 9 1 noreply|!|prepend k 9 9 1|<|get k", "STORED|VALUE k 0 3|<w!|END");
        expect("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value");
        expect("set n 0 0 20|18446744073709551615|incr n 2|decr n 5", "STORED|1|0");
        expect("set n 0 0 2|10|decr n 1|get n", "STORED|9|VALUE n 0 2|9 |END");
        expect("incr n -1", "CLIENT_ERROR invalid numeric delta argument");
        expect("incr nobody 1", "NOT_FOUND");
        expect("delete k 0|delete k|delete k 5", "DELETED|NOT_FOUND|CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
        expect("version|verbosity 1|verbosity", "VERSION " + TextProtocol.VERSION + "|OK|ERROR");
    }

    @Test
    void whatIsMalformedGetsTheProtocolsErrorAndTheConversationGoesOn() throws IOException {
        expect("nonsense||get|set k 0 0|touch k", "ERROR|ERROR|ERROR|ERROR|ERROR");
        expect("get " + "x".repeat(251), "CLIENT_ERROR bad command line format");
        expect("set " + "x".repeat(251) + " 0 0 1|v|version", "CLIENT_ERROR bad command line format|VERSION " + TextProtocol.VERSION);
        expect("set k x 0 1|v|set k 4294967296 0 1|v", "CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format");
        expect("set k 0 0 -1", "CLIENT_ERROR bad command line format");
        expect("set k 0 0 99999999999999999999", "CLIENT_ERROR bad command line format");
        expect("set k 0 0 1|toolong|version", "CLIENT_ERROR bad data chunk|VERSION " + TextProtocol.VERSION);
        expect("set k 0 0 1|v|set k 0 0 20000|" + "x".repeat(20_000) + "|get k", "STORED|SERVER_ERROR object too large for cache|END");
        expect("touch k x|gat x k", "CLIENT_ERROR invalid exptime argument|CLIENT_ERROR invalid exptime argument");
        expect("flush_all x", "CLIENT_ERROR bad command line format");
        assertFalse(session.isClosing());
        expect("x".repeat(Session.LINE_MAX + 100), "CLIENT_ERROR line too long");
        assertTrue(session.isClosing());
    }

    @Test
    void valuesExpireAndAreFlushedWhenTheClockSaysSo() throws IOException {
        expect("set k 0 2 1|v|set past 0 -1 1|v|get past", "STORED|STORED|END");
        now += 1999;
        expect("get k", "VALUE k 0 1|v|END");
        expect("touch k 10|gat 20 k", "TOUCHED|VALUE k 0 1|v|END");
        now += 19_999;
        expect("get k", "VALUE k 0 1|v|END");
        now += 1;
        expect("get k|touch k 1", "END|NOT_FOUND");
        expect("set k 0 " + (now / 1000 + 5) + " 1|v|get k", "STORED|VALUE k 0 1|v|END");
        now += 5000;
        expect("get k|set k 0 0 1|v|flush_all 3|get k", "END|STORED|OK|VALUE k 0 1|v|END");
        now += 3000;
        expect("get k|set k 0 0 1|v|get k", "END|STORED|VALUE k 0 1|v|END");
        expect("flush_all noreply|get k", "END");
    }

    @Test
    void whatWasUsedLeastRecentlyGoesFirst() throws IOException {
        byte[] value = new byte[1000];
        String body = new String(value, StandardCharsets.ISO_8859_1);
        expect("set first 0 0 1000|" + body + "|set second 0 0 1000|" + body, "STORED|STORED");
        for (int i = 0; store.counters.get(Counters.Counter.evictions) == 0; i++) {
            assertEquals("VALUE first 0 1000|" + body + "|END", say("get first"));
            assertEquals("STORED", say("set k" + i + " 0 0 1000|" + body));
        }
        expect("get second", "END");
        assertTrue(say("get first").startsWith("VALUE"));
    }

    @Test
    void theMetaProtocolSaysWhatMemcachedSays() throws IOException {
        expect("mn|mg k v", "MN|EN");
        expect("ms k 2 c F5 T100|hi", "HD c1");
        expect("mg k v f s c t k Oq h", "VA 2 f5 s2 c1 t100 kk Oq h0|hi");
        expect("mg k h|mg k q k|mg nobody q v k|mn", "HD h1|HD kk|MN");
        expect("ms k 1 ME|x|ms nobody 1 MR|x|ms k 1 MA|!|mg k v", "NS|NS|HD|VA 3|hi!");
        expect("ms k 1 C1|x|md k C1|ms k 1 q C2|x|mn", "EX|EX|MN");
        expect("mg k v s c|md k q|md k|md k q|mg k", "VA 1 s1 c3|x|NF|EN");
        expect("ms Zm9v 1 b|x|mg foo v|mg Zm9v b k v", "HD|VA 1|x|VA 1 b kZm9v|x");
        expect("ma n|ma n N0 J13 v|ma n v|ma n MD D4 v t", "NF|VA 2|13|VA 2|14|VA 2 t-1|10");
        expect("ms n 1|x|ma n", "HD|CLIENT_ERROR cannot increment or decrement non-numeric value");
        expect("mg new N30 v t|mg new N30 v", "VA 0 t30 W||VA 0 Z|");
        expect("ms k 1|x|md k I T30|mg k v|mg k v|ms k 1|y|mg k v", "HD|HD|VA 1 X W|x|VA 1 X Z|x|HD|VA 1|y");
        expect("ms k 1 T10|z|mg k R30 v|mg k R30 v", "HD|VA 1 W|z|VA 1 Z|z");
        expect("me nobody", "EN");
        assertTrue(say("me k").matches("ME k exp=10 la=0 cas=\\d+ fetch=yes cls=1 size=56"), say("me k"));
    }

    @Test
    void malformedMetaCommandsAreRefused() throws IOException {
        expect("mg", "CLIENT_ERROR bad command line format");
        expect("mg k !", "CLIENT_ERROR invalid flag");
        expect("mg k v v", "CLIENT_ERROR duplicate flag");
        expect("mg k T", "CLIENT_ERROR bad token in command line format");
        expect("mg k Tx", "CLIENT_ERROR bad token in command line format");
        expect("mg *** b", "CLIENT_ERROR error decoding key");
        expect("ms k x", "CLIENT_ERROR bad data chunk");
        expect("ms k 1 MX|v|mn", "CLIENT_ERROR invalid mode for ms|MN");
        expect("ms k 1 !|v|mn", "CLIENT_ERROR invalid flag|MN");
        expect("ms k 20000|" + "x".repeat(20_000) + "|mn", "SERVER_ERROR object too large for cache|MN");
        expect("ma k MX", "CLIENT_ERROR invalid mode for ma");
    }

    private static byte[] binary(int opcode, int extras, byte[] key, int body, byte[] rest) {
        return ByteBuffer.allocate(24 + rest.length).put((byte) 0x80).put((byte) opcode).putShort((short) key.length).put((byte) extras)
                .put((byte) 0).putShort((short) 0).putInt(body).putInt(0xABCD).putLong(0).put(rest).array();
    }

    @Test
    void malformedBinaryRequestsAreRefusedWithTheirStatus() throws IOException {
        byte[] key = {'k'};
        assertEquals(0x81, ByteBuffer.wrap(say(binary(0x77, 0, key, 1, key), 1)).getShort(6));
        assertEquals(4, ByteBuffer.wrap(say(binary(0x00, 0, new byte[0], 0, new byte[0]), 1)).getShort(6), "get without a key");
        assertEquals(4, ByteBuffer.wrap(say(binary(0x01, 0, key, 2, new byte[] {'k', 'v'}), 1)).getShort(6), "set without extras");
        assertEquals(4, ByteBuffer.wrap(say(binary(0x00, 0, new byte[300], 300, new byte[300]), 7)).getShort(6), "a long key");
        byte[] large = new byte[30_000];
        assertEquals(3, ByteBuffer.wrap(say(binary(0x01, 8, key, large.length, large), 1000)).getShort(6), "a large value");
        assertFalse(session.isClosing());
        assertEquals(4, ByteBuffer.wrap(say(binary(0x00, 9, key, 3, new byte[0]), 1)).getShort(6), "lengths that contradict");
        assertTrue(session.isClosing());
    }

    @Test
    void aByteAtATimeIsUnderstoodAsAllAtOnce() throws IOException {
        String lines = "set k 0 0 5\r\nhello\r\nget k\r\nms m 3 c\r\nabc\r\nmg m v\r\nincr k 1\r\nset k 0 0 1\r\nxyz\r\nnonsense\r\nget k\r\n";
        byte[] bytes = lines.getBytes(StandardCharsets.ISO_8859_1);
        String slowly = new String(say(bytes, 1), StandardCharsets.ISO_8859_1);
        assertTrue(slowly.startsWith("STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\nHD c2\r\nVA 3\r\nabc\r\n"), slowly);
        assertTrue(slowly.endsWith("ERROR\r\nVALUE k 0 5\r\nhello\r\nEND\r\n"), slowly);
        store.flush(now);
        session = new Session(store, ALONE);
        String atOnce = new String(say(bytes, bytes.length), StandardCharsets.ISO_8859_1);
        assertEquals(slowly.replace("c2", "c"), atOnce.replaceFirst("HD c\\d+", "HD c"));
    }

    @Test
    void noBytesEndTheServer() throws IOException {
        String[] words = {"set", "get", "mg", "ms", "ma", "md", "k", "1", "0", "-1", "v", "N0", "MA", "b", "\r\n", "\r\n", " ", "18446744073709551616"};
        SplittableRandom random = new SplittableRandom(1);
        for (int round = 0; round < 20_000; round++) {
            session = new Session(store, ALONE);
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            for (int i = random.nextInt(20); i >= 0; i--) {
                switch (random.nextInt(5)) {
                    case 0 -> bytes.write(random.nextInt(256));
                    case 1 -> bytes.write(binary(random.nextInt(256), random.nextInt(24), new byte[random.nextInt(3)], random.nextInt(40),
                            new byte[random.nextInt(40)]));
                    default -> bytes.write((words[random.nextInt(words.length)] + " ").getBytes(StandardCharsets.ISO_8859_1));
                }
            }
            say(bytes.toByteArray(), 1 + random.nextInt(64));
        }
        session = new Session(store, ALONE);
        expect("set k 0 0 1|v|get k", "STORED|VALUE k 0 1|v|END");
    }
}

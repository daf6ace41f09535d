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
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        for (int from = 0; from < bytes.length; from += atOnce) {
            int until = Math.min(bytes.length, from + atOnce);
            for (int at = from; at < until;) {
                ByteBuffer room = session.room();
                int some = Math.min(room.remaining(), until - at);
                room.put(bytes, at, some);
                at += some;
                session.received();
                hear(said);
            }
        }
        hear(said);
        return said.toByteArray();
    }

    /** Takes everything that the session has to say. */
    private void hear(ByteArrayOutputStream said) throws IOException {
        session.output.flush(Channels.newChannel(said));
        while (session.isPaused()) {
            session.proceed();
            session.output.flush(Channels.newChannel(said));
        }
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
        expect("set " + "x".repeat(251) + " 0 0 1|v|version", "CLIENT_ERROR bad command line format|ERROR|VERSION " + TextProtocol.VERSION);
        expect("set k x 0 1|v|set k 4294967296 0 1|v|get k", "CLIENT_ERROR bad command line format|ERROR|STORED|VALUE k 0 1|v|END");
        expect("set k 0 0 -1", "CLIENT_ERROR bad command line format");
        expect("set k 0 0 99999999999999999999", "CLIENT_ERROR bad command line format");
        expect("set k 0 0 1|toolong|version", "CLIENT_ERROR bad data chunk|ERROR|VERSION " + TextProtocol.VERSION);
        expect("set k 0 0 1|v|set k 0 0 20000|" + "x".repeat(20_000) + "|get k", "STORED|SERVER_ERROR object too large for cache|END");
        expect("touch k x|gat x k", "CLIENT_ERROR invalid exptime argument|CLIENT_ERROR invalid exptime argument");
        expect("flush_all x", "CLIENT_ERROR invalid exptime argument");
        assertFalse(session.isClosing());
        byte[] endless = "x".repeat(TextProtocol.OTHER_MAX + 100).getBytes(StandardCharsets.ISO_8859_1);
        assertEquals(0, say(endless, endless.length).length);
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
    void aGetThatIsRefusedForItsOpaqueTokenCountsAsMemcachedCountsIt() throws IOException {
        String opaque = " O" + "o".repeat(40);
        String refused = "HD|CLIENT_ERROR opaque token too long|HD ";
        for (String flags : new String[] {"", " s c k t", " v", " q"}) {
            expect("ms k 1|v|mg k" + flags + opaque + "|mg k h", refused + "h1");
        }
        for (String flags : new String[] {" l", " u", " t h"}) {
            expect("ms k 1|v|mg k" + flags + opaque + "|mg k h", refused + "h0");
        }
        expect("mg nobody" + opaque + "|mg nobody", "CLIENT_ERROR opaque token too long|EN");
    }

    @Test
    void theMetaProtocolSaysWhatMemcachedSays() throws IOException {
        expect("mn|mg k v", "MN|EN");
        expect("ms k 2 c F5 T100|hi", "HD c1");
        expect("mg k v f s c t k Oq h", "VA 2 f5 s2 c1 t100 kk Oq h0|hi");
        expect("mg k h|mg k q k|mg nobody q v k|mn", "HD h1|HD kk|MN");
        expect("ms k 1 ME|x|ms nobody 1 MR|x|ms k 1 MA|!|mg k v", "NS|NS|HD|VA 3|hi!");
        expect("ms k 1 C1|x|md k C1|ms k 1 q C2|x|mn", "EX|EX|MN");
        expect("mg k v s c|md k q|md k|md k q|mg k", "VA 1 s1 c3|x|NF|NF|EN");
        expect("ms Zm9v 1 b|x|mg foo v|mg Zm9v b k v", "HD|VA 1|x|VA 1 kZm9v b|x");
        expect("ma n|ma n N0 J13 v|ma n v|ma n MD D4 v t", "NF|VA 2|13|VA 2|14|VA 2 t-1|10");
        expect("ms n 1|x|ma n", "HD|CLIENT_ERROR cannot increment or decrement non-numeric value");
        expect("mg new N30 v t|mg new N30 v", "VA 0 t30 W||VA 0 Z|");
        expect("ms k 1|x|md k I T30|mg k v|mg k v|ms k 1|y|mg k v", "HD|HD|VA 1 X W|x|VA 1 Z X|x|HD|VA 1|y");
        expect("ms k 1 T10|z|mg k R30 v|mg k R30 v", "HD|VA 1 W|z|VA 1 Z|z");
        expect("me nobody", "EN");
        assertTrue(say("me k").matches("ME k exp=-10 la=0 cas=\\d+ fetch=yes cls=1 size=56"), say("me k"));
    }

    @Test
    void malformedMetaCommandsAreRefused() throws IOException {
        expect("mg", "ERROR");
        expect("mg k !", "CLIENT_ERROR invalid flag");
        expect("mg k v v", "CLIENT_ERROR duplicate flag");
        expect("mg k T", "CLIENT_ERROR bad token in command line format");
        expect("mg k Tx", "CLIENT_ERROR bad token in command line format");
        expect("mg *** b", "CLIENT_ERROR error decoding key");
        expect("ms k x", "CLIENT_ERROR bad command line format");
        expect("ms k 1 MX|v|mn", "CLIENT_ERROR invalid mode for ms M token|MN");
        expect("ms k 1 !|v|mn", "CLIENT_ERROR invalid flag|MN");
        expect("ms k 20000|" + "x".repeat(20_000) + "|mn", "SERVER_ERROR object too large for cache|MN");
        expect("ma k MX", "CLIENT_ERROR invalid mode for ma M token");
    }

    private static byte[] binary(int opcode, int extras, byte[] key, int body, byte[] rest) {
        return ByteBuffer.allocate(24 + rest.length).put((byte) 0x80).put((byte) opcode).putShort((short) key.length).put((byte) extras)
                .put((byte) 0).putShort((short) 0).putInt(body).putInt(0xABCD).putLong(0).put(rest).array();
    }

    /** The status of the answer to a request in a conversation of its own. */
    private int status(byte[] request, int atOnce) throws IOException {
        session = new Session(store, ALONE);
        return ByteBuffer.wrap(say(request, atOnce)).getShort(6);
    }

    @Test
    void malformedBinaryRequestsAreRefusedWithTheirStatus() throws IOException {
        byte[] key = {'k'};
        assertEquals(0x81, status(binary(0x77, 0, key, 1, key), 1));
        assertFalse(session.isClosing(), "an unknown request is skipped");
        byte[] large = new byte[30_000];
        large[8] = 'k';
        assertEquals(3, status(binary(0x01, 8, key, large.length, large), 1000), "a large value");
        assertFalse(session.isClosing(), "so is a large value");
        assertEquals(4, status(binary(0x00, 0, new byte[0], 0, new byte[0]), 1), "get without a key");
        assertTrue(session.isClosing());
        assertEquals(4, status(binary(0x01, 0, key, 2, new byte[] {'k', 'v'}), 1), "set without extras");
        assertTrue(session.isClosing());
        assertEquals(4, status(binary(0x00, 0, new byte[300], 300, new byte[300]), 7), "a long key");
        assertTrue(session.isClosing());
        assertEquals(0x81, status(binary(0x00, 9, key, 3, new byte[0]), 1), "lengths that contradict each other");
        assertTrue(session.isClosing());
    }

    private static byte[] increment(int opcode, int seconds) {
        byte[] rest = ByteBuffer.allocate(21).putLong(1).putLong(7).putInt(seconds).put((byte) 'n').array();
        return binary(opcode, 20, new byte[] {'n'}, rest.length, rest);
    }

    @Test
    void aNumberThatIsMadeWithAnExpiryInThePastIsAnsweredAndGone() throws IOException {
        for (int opcode : new int[] {0x05, 0x06}) {
            ByteBuffer answer = ByteBuffer.wrap(say(increment(opcode, 30 * 24 * 3600 + 1), 50));
            assertEquals(0, answer.getShort(6));
            assertTrue(answer.getLong(16) > 0, "a unique number");
            assertEquals(7, answer.getLong(24));
            assertEquals(1, ByteBuffer.wrap(say(binary(0x00, 0, new byte[] {'n'}, 1, new byte[] {'n'}), 50)).getShort(6), "it has expired");
        }
        for (int seconds : new int[] {Integer.MIN_VALUE, -2}) {
            byte[] extras = ByteBuffer.allocate(10).putInt(0).putInt(seconds).put((byte) 'l').put((byte) 'v').array();
            assertEquals(0, ByteBuffer.wrap(say(binary(0x01, 8, new byte[] {'l'}, 10, extras), 50)).getShort(6));
            byte[] found = say(binary(0x00, 0, new byte[] {'l'}, 1, new byte[] {'l'}), 50);
            assertEquals(0, ByteBuffer.wrap(found).getShort(6), "an expiry beyond 2038 is in the future");
        }
    }

    @Test
    void everyOtherCommandAnswersAnItemThatHasExpiredMeanwhile() throws IOException {
        // The clock goes on at each look, so that an item with an expiry ends within the command that stores it.
        Store hurried = new Store(store.options, Arena.ofAuto().allocate(1 << 20, 64), () -> now += 1500);
        session = new Session(hurried, ALONE);
        expect("set k 0 1 1|v|get k", "STORED|END");
        expect("ms k 1 T1 c|v|mg k v", "HD c2|EN");
        expect("ma n N1 J5 v c", "VA 1 c3|5");
        expect("mg new N1 v", "VA 0 W|");
        assertEquals(0, ByteBuffer.wrap(binaryAlone(hurried, increment(0x05, 1))).getShort(6));
    }

    private byte[] binaryAlone(Store of, byte[] request) throws IOException {
        session = new Session(of, ALONE);
        return say(request, request.length);
    }

    @Test
    void zeroIsAUniqueNumberThatNoItemHas() throws IOException {
        expect("ms k 1|v|ms k 1 C0|x|md k C0|mg k v", "HD|EX|EX|VA 1|v");
        expect("ms k 1 C0 I|x|ms k 1 C0 MR|x|md k C0 I|mg k v", "EX|EX|EX|VA 1|v");
        expect("ms nobody 1 C0|x|md nobody C0", "NF|NF");
        expect("ms k 1 C0 MA|!|mg k v|ma n N0 J5|ma n C0 v", "HD|VA 2|v!|HD|VA 1|6");
    }

    @Test
    void keysOfAnyBytesComeBackAsTheyWere() throws IOException {
        String key = "schl\u00c3\u00bcssel\u00ff";
        expect("ms " + key + " 1 k|v|mg " + key + " k v|md " + key + " k|ma " + key + " k N0", "HD k" + key + "|VA 1 k" + key + "|v|HD k" + key + "|HD k" + key);
        assertTrue(say("me " + key).startsWith("ME " + key + " exp="));
        expect("mg nobody k Oabc|mg nobody k O\u00e9 q|mg bm9ib2R5 b k|md nobody O1 k|ma nobody k O2", "EN knobody Oabc|EN kbm9ib2R5 b|NF O1 knobody|NF knobody O2");
        expect("ms AP8g 1 b k O1|v|mg AP8g b k|mg AP8g b k v O2", "HD kAP8g b O1|HD kAP8g b|VA 1 kAP8g b O2|v");
    }

    @Test
    void theTimeSinceTheLastAccessIsThatBeforeTheCommand() throws IOException {
        expect("ms k 1|v", "HD");
        now += 5000;
        expect("mg k l h", "HD l5 h0");
        now += 2000;
        expect("mg k u l h|mg k l h|mg k l", "HD l2 h1|HD l2 h1|HD l0");
        assertTrue(say("me k").contains(" la=0 "));
    }

    @Test
    void aClientThatWantsNoAnswerGetsNone() throws IOException {
        expect("set k 0 0 1 noreply|v|set k x 0 0 noreply|incr k x noreply|incr k 1 noreply|decr nobody 1 noreply|mn", "MN");
        expect("touch k x noreply|touch nobody 1 noreply|delete nobody noreply|delete k 5 noreply|flush_all x noreply|verbosity noreply|mn", "MN");
        expect("set k 0 0 1 noreply|toolong|mn", "ERROR|MN");
        expect("set k 0 0 20000 noreply|" + "x".repeat(20_000) + "|append k 0 0 1 noreply|v|add k 0 0 1 noreply|v|cas k 0 0 1 9 noreply|v|mn", "MN");
        expect("set " + "x".repeat(251) + " 0 0 0 noreply|mn", "MN");
    }

    @Test
    void aGetThatTouchesGivesTheValueThatItEnds() throws IOException {
        expect("set k 0 0 1|v|gat -1 k|get k", "STORED|VALUE k 0 1|v|END|END");
        expect("set k 0 0 1|v|gats 2592001 k nobody|get k", "STORED|VALUE k 0 1 2|v|END|END");
        expect("set k 0 0 1|v|mg k T-1 v|get k|gat 10|gat", "STORED|VA 1|v|END|END|ERROR");
    }

    @Test
    void aRequestOfTheWebEndsTheConversation() throws IOException {
        for (String line : new String[] {"GET / HTTP/1.1", "POST /x HTTP/1.0", "OPTIONS * HTTP/2"}) {
            session = new Session(store, ALONE);
            expect(line + "|set k 0 0 1|v", "");
            assertTrue(session.isClosing(), line);
        }
        session = new Session(store, ALONE);
        expect("get HTTP/1.1|GET /|version HTTP/1.1", "END|ERROR|VERSION " + TextProtocol.VERSION);
        assertFalse(session.isClosing());
    }

    @Test
    void aConversationKeepsTheProtocolInWhichItBegan() throws IOException {
        expect("mn", "MN");
        byte[] request = binary(0x0b, 0, new byte[0], 0, new byte[0]);
        assertEquals("ERROR\r\n", new String(say((new String(request, StandardCharsets.ISO_8859_1) + "\n").getBytes(StandardCharsets.ISO_8859_1), 40),
                StandardCharsets.ISO_8859_1));
        assertEquals(0, status(request, 24));
        assertEquals(0, say("mn\r\n".getBytes(StandardCharsets.ISO_8859_1), 4).length);
        assertTrue(session.isClosing());
    }

    @Test
    void numbersAreReadAsCReadsThem() throws IOException {
        expect("set k 4294967297 0 1|v|get k", "STORED|VALUE k 1 1|v|END");
        expect("set k 0 -0 +1|v|set k 0 0100000 4294967297|v|set k 0 4294967295 1|v|get k", "STORED|STORED|STORED|END");
        expect("set n 0 0 3| 5x|incr n 1|set n 0 0 3|5 x|incr n 1|get n", "STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|STORED|6|VALUE n 0 3|6  |END");
        expect("set n 0 0 3|007|incr n 1|get n|set n 0 0 2|-1|incr n 1", "STORED|8|VALUE n 0 3|8  |END|STORED|CLIENT_ERROR cannot increment or decrement non-numeric value");
        expect("set n 0 0 0||incr n 1|incr n 18446744073709551616", "STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|CLIENT_ERROR invalid numeric delta argument");
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

package highwire.memcached;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Pipelines of text and meta commands, well-formed or not, from a seed.
 *
 * <p>No expiry lies within minutes, as the clocks of two servers do not tick together. {@code mn} precedes what memcached answers in another way while
 * answers wait: it adds to a number elsewhere if a value of the key is on its way, and forgets what waits when it refuses a get. No value is blank, as
 * memcached looks for its number behind it, and nothing that is stored has a minus, as it looks for one behind numbers of 64 bits.
 */
final class TextBatches {
    static final String[] KEYS = {"k", "key1", "key2", "schl\u00c3\u00bcssel", "\u00ff\u0080", "a\tb", "x".repeat(250), "noreply", "n1", "n2", "n3", "big"};
    private static final String[] TIMES = {
        "0", "0", "0", "0", "10000", "100000", "+100000", "0100000", "2592000", "2592001", "-1", "-0", "-2147483648", "2147483647", "2147483648",
        "4294967295", "4294967296", "99999999999999999999", "abc", "1x", "--1"};
    private static final String[] RECACHE = {"0", "-1", "5000", "50000", "2147483647", "x"};
    private static final String[] FLAGS = {"0", "0", "65536", "4294967295", "4294967296", "-10000", "-18446744073709551615", "x"};
    private static final String[] DELTAS = {"1", "0", "5", "90", "18446744073709551615", "9223372036854775808", "18446744073709551616", "-1", "+3", "x", "3x"};
    private static final String[] NUMBERS = {"0", "7", "10", "99", "007", "18446744073709551615", " 5", "5 x", "+5", "10000", "12345678901234567890", "1 "};
    private static final String[] WORDS = {"noreply", "0", "10000", "-1", "x", "k", "\t", "a\0b", "q", "v", "k O1", "", "HTTP/1.1"};
    private static final String META = "bkOqstvcfhlu";

    private static final int LINE = 1500;
    /** Twice, as a value whose length is wrong takes a part of what follows. */
    private static final String FLUSH = "mn\r\nmn\r\n";

    private final SplittableRandom random;
    private final List<Long> casPool = new ArrayList<>(List.of(1L, 2L));
    private final List<String> large = new ArrayList<>();
    private ByteArrayOutputStream out;
    int commands;

    TextBatches(SplittableRandom random) {
        this.random = random;
    }

    /** Numbers that items have had lately. */
    void casSeen(long cas) {
        if (casPool.size() == 24) {
            casPool.removeFirst();
        }
        casPool.add(cas);
    }

    /** A pipeline; at its end it asks for everything. */
    byte[] next() {
        out = new ByteArrayOutputStream();
        commands = 0;
        for (int i = random.nextInt(60); i >= 0; i--) {
            commands++;
            command();
        }
        if (random.nextInt(30) == 0) {
            // The last bytes of a conversation: a server that closes with some unread resets the connection, and answers are lost.
            say(FLUSH + pick("GET / HTTP/1.1", "POST /x HTTP/1.0", "quit", "quit now", "get k", "mg", "x HTTP/") + "\r\n");
            return out.toByteArray();
        }
        say(FLUSH + "gets " + String.join(" ", KEYS) + "\r\n");
        // Values of a megabyte in every conversation would make them slow.
        for (String key : large) {
            say("delete " + key + "\r\n");
        }
        large.clear();
        for (String key : KEYS) {
            say("me " + key + "\r\nmg " + key + " k f c s u\r\n");
        }
        return out.toByteArray();
    }

    private void say(String text) {
        out.writeBytes(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    private String pick(String... of) {
        return of[random.nextInt(of.length)];
    }

    private boolean oneIn(int n) {
        return random.nextInt(n) == 0;
    }

    private String cas() {
        return switch (random.nextInt(8)) {
            case 0 -> "0";
            case 1 -> pick("18446744073709551615", "-1", "x", "99999999999999999999");
            default -> Long.toUnsignedString(casPool.get(random.nextInt(casPool.size())));
        };
    }

    private byte[] value() {
        int length = switch (random.nextInt(400)) {
            case 0 -> 100_000 + random.nextInt(1000);
            case 1 -> 700_000 + random.nextInt(1000);
            case 2 -> 1_100_000;
            case 3, 4, 5, 6 -> 3000 + random.nextInt(10_000);
            default -> random.nextInt(20);
        };
        if (length < 15) {
            return switch (random.nextInt(3)) {
                case 0 -> pick(NUMBERS).getBytes(StandardCharsets.ISO_8859_1);
                case 1 -> pick("", "v", "abc\r\ndef", "\0\u00ff", "\r\nx", "five!").getBytes(StandardCharsets.ISO_8859_1);
                default -> letters(length);
            };
        }
        return letters(length);
    }

    private byte[] letters(int length) {
        byte[] value = new byte[length];
        Arrays.fill(value, (byte) ('a' + random.nextInt(26)));
        return value;
    }

    private void command() {
        String noreply = oneIn(5) ? " noreply" : "";
        String key = pick(KEYS);
        String number = "n" + (1 + random.nextInt(3));
        switch (random.nextInt(22)) {
            case 0, 1, 2, 3 -> store(pick("set", "set", "add", "replace", "append", "prepend") + " " + key + " " + pick(FLAGS) + " " + pick(TIMES), noreply);
            case 4 -> store("cas " + key + " " + pick(FLAGS) + " " + pick(TIMES), " " + cas() + noreply);
            case 5, 6 -> line(pick("get", "gets", "get", "bget") + " " + key + (oneIn(3) ? " " + pick(KEYS) + "  " + pick(KEYS) : ""));
            case 7 -> line(pick("gat", "gats") + " " + pick(TIMES) + " " + key + (oneIn(3) ? " " + pick(KEYS) : ""));
            case 8 -> line("touch " + key + " " + pick(TIMES) + noreply);
            case 9 -> line("delete " + key + pick("", "", " 0", " 5") + noreply);
            case 10, 11 -> number(pick("incr ", "decr ") + (oneIn(4) ? key : number) + " " + pick(DELTAS) + noreply);
            case 12 -> say((oneIn(6) ? pick("flush_all", "flush_all 0", "flush_all -5", "flush_all noreply", "flush_all 0 noreply") : pick("flush_all x",
                    "flush_all x noreply", "version", "verbosity 0", "verbosity", "verbosity x", "verbosity noreply", "nonsense", "", " ", "g", "mx", "mn x",
                    "shutdown", "get", "gat", "gat 0", "gat x", "set", "ms", "ms k", "mg", "md", "ma", "me", "cas k 0 0", "incr k", "touch k", "delete",
                    "delete k 0 noreply x", "bget")) + pick("\r\n", "\n"));
            case 13 -> {
                String wide = "y".repeat(251);
                say(FLUSH + pick("get k ", "get ", "gets k key1 ", "touch ", "delete ", "mg ", "md ", "ma ", "me ") + wide + pick("", " 0") + "\r\n");
                say(pick("set ", "add ", "ms ") + wide + " 0 0 1 \r\nv\r\n");
            }
            case 14, 15, 16 -> line("mg " + metaKey(key, pick("v", "v", "", "s")));
            case 17, 18 -> metaSet(key);
            case 19 -> line("md " + metaKey(key, "") + (oneIn(2) ? " C" + cas() : "") + (oneIn(3) ? " I" + (oneIn(2) ? " T" + pick(TIMES) : "") : ""));
            case 20 -> arithmetic(oneIn(4) ? key : number);
            default -> line("me " + (oneIn(3) ? Base64.getEncoder().encodeToString(key.getBytes(StandardCharsets.ISO_8859_1)) + " b" : key));
        }
    }

    /** A line, malformed now and then. */
    private void line(String text) {
        sayAlone(oneIn(12) ? mutated(text) : text);
        say(oneIn(10) ? "\n" : "\r\n");
    }

    /** Says a line behind what makes memcached send its answers, if it may hang up at the line: it forgets what waits then. */
    private void sayAlone(String line) {
        boolean mayHangUp = line.contains("HTTP/");
        say(mayHangUp ? FLUSH + line : line);
    }

    private void number(String text) {
        say(FLUSH);
        line(text);
    }

    private String mutated(String text) {
        List<String> words = new ArrayList<>(List.of(text.split(" ")));
        int at = 1 + random.nextInt(Math.max(1, words.size() - 1));
        switch (random.nextInt(4)) {
            // The flag `x` of `md` is one of later releases.
            case 0 -> words.add(words.get(0).equals("md") ? words.size() : Math.min(at, words.size()), words.get(0).equals("md") ? "z" : pick(WORDS));
            case 1 -> words.remove(words.get(0).equals("md") ? words.size() - 1 : Math.min(at, words.size() - 1));
            case 2 -> words.add(words.get(0).equals("md") ? words.size() : Math.min(at, words.size()), words.get(0).equals("md") ? "v" : words.get(Math.min(at, words.size() - 1)));
            default -> words.set(0, pick(words.get(0).toUpperCase(java.util.Locale.ROOT), words.get(0) + "x", " " + words.get(0)));
        }
        return String.join(" ", words);
    }

    private void store(String before, String behind) {
        byte[] value = value();
        if (value.length > LINE) {
            // A value whose command is refused is read as a command, and one of this length ends the conversation.
            String[] words = before.split(" ");
            boolean isMeta = words.length == 2;
            large.add(words[1]);
            say(FLUSH + String.join(" ", words[0], words[1]) + (isMeta ? " " : " 65536 10000 ") + value.length + (isMeta ? "" : words[0].equals("cas") ? " 5" : ""));
            say("\r\n");
            out.writeBytes(value);
            say("\r\n");
            return;
        }
        // No length takes a part of what follows for a value that is blank then.
        int told = value.length > 0 && oneIn(15) ? Math.max(0, value.length + random.nextInt(5) - 2) : value.length;
        String text = before + " " + (oneIn(40) ? pick("-1", "x", "4294967296", "99999999999999999999") : told) + behind;
        // A word more or less before the length would make a length of another number, for which there is no value.
        switch (random.nextInt(40)) {
            case 0 -> text += " " + pick(WORDS);
            case 1 -> text = text.toUpperCase(java.util.Locale.ROOT);
            case 2 -> text = before;
            case 3 -> text = before.substring(0, before.lastIndexOf(' '));
            default -> { }
        }
        sayAlone(text + (oneIn(10) ? "\n" : "\r\n"));
        out.writeBytes(value);
        say(oneIn(40) ? "\n" : "\r\n");
    }

    private String metaKey(String key, String more) {
        boolean isBinary = oneIn(3);
        byte[] bytes = oneIn(4) ? new byte[] {0, ' ', '\n', (byte) 0xFE} : key.getBytes(StandardCharsets.ISO_8859_1);
        StringBuilder text = new StringBuilder(isBinary ? bytes.length > 180 ? "azE=" : Base64.getEncoder().encodeToString(bytes) : key);
        if (isBinary && oneIn(10)) {
            text.append(pick("*", "=", "A", "!!!!"));
        }
        text.append(isBinary ? " b" : "").append(' ').append(more);
        for (int i = random.nextInt(5); i > 0; i--) {
            char flag = META.charAt(1 + random.nextInt(META.length() - 1));
            text.append(' ').append(flag).append(flag == 'O' ? pick("1", "abc", "\u00e9", "") : "");
        }
        if (text.toString().startsWith(key) && more.equals("v")) {
            text.append(oneIn(5) ? " T" + pick(TIMES) : "").append(oneIn(5) ? " N" + pick(TIMES) : "").append(oneIn(5) ? " R" + pick(RECACHE) : "");
            text.append(oneIn(3) ? pick(" t", " z", " S", " P", " L", " F0", " Mx", " D1 J2") : "");
        } else if (more.equals("s") && oneIn(20)) {
            text.append(" O").append("o".repeat(40));
        } else if (oneIn(40)) {
            text.append(" P".repeat(1)).append(" L").append(" s t c f h l u".repeat(2));
        }
        return text.toString().replaceAll(" +", " ").strip();
    }

    private void metaSet(String key) {
        String[] words = metaKey(key, "").split(" ", 2);
        String flags = (words.length > 1 ? " " + words[1] : "") + (oneIn(3) ? " C" + cas() : "") + (oneIn(4) ? " I" : "") + (oneIn(4) ? " F" + pick(FLAGS) : "")
                + (oneIn(4) ? " T" + pick(TIMES) : "") + (oneIn(3) ? " M" + pick("S", "E", "A", "P", "R", "x", "", "SS", "s") : "");
        store("ms " + words[0], flags);
    }

    private void arithmetic(String key) {
        String text = "ma " + metaKey(key, "").replaceAll(" O\\S{33,}", "") + (oneIn(3) ? " C" + cas() : "") + (oneIn(3) ? " N" + pick("0", "10000", "-1", "x") : "")
                + (oneIn(3) ? " J" + pick(DELTAS) : "") + (oneIn(3) ? " D" + pick(DELTAS) : "");
        // A number that grows loses its new expiry in memcached: only one that shrinks gets one.
        text += oneIn(3) ? " MD" + (oneIn(2) ? " T" + pick(TIMES) : "") : oneIn(3) ? " M" + pick("I", "+", "-", "i", "x", "") : "";
        number(text);
    }
}

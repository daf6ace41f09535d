package highwire.memcached;

import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Change;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The text protocol. Lines are ISO 8859-1 here, so that keys of any bytes come through. */
final class TextProtocol {
    static final String VERSION = "1.6.18-highwire";
    static final String BAD_FORMAT = "CLIENT_ERROR bad command line format";
    static final String TOO_LARGE = "SERVER_ERROR object too large for cache";
    /** Longest line of a get. Any other line is as good as none if it is longer than {@link #OTHER_MAX}. */
    static final int LINE_MAX = 1 << 20;
    static final int OTHER_MAX = 2048;
    private static final int WORDS_MAX = 23;
    private static final int END = 2;
    private static final int ZERO = 0;

    private final Session session;
    private final Store store;
    private final Output out;
    private final MetaProtocol meta;
    private final Administration administration;
    /** How far the line has been searched for its end. */
    private int searched;
    private boolean isQuiet;
    /** The keys of a get that is being answered, and the place of the next one; null if there is none. */
    private byte[] keys;
    private int nextKey;
    private boolean withCas;
    private Long touchExpiry;

    TextProtocol(Session session) {
        this.session = session;
        this.store = session.store;
        this.out = session.output;
        this.meta = new MetaProtocol(session, this);
        this.administration = new Administration(session);
    }

    /** Takes the next command, if it is complete. */
    Progress next() {
        ByteBuffer input = session.input;
        int start = input.position();
        int end = start + searched;
        while (end < input.limit() && input.get(end) != '\n') {
            end++;
        }
        searched = end - start;
        if (end == input.limit()) {
            boolean isTooLong = searched > LINE_MAX || searched > OTHER_MAX && !isGet(input, start);
            return isTooLong ? Progress.CLOSE : Progress.MORE;
        }
        int length = searched;
        if (length > 1 && input.get(end - 1) == '\r') {
            length--;
        }
        byte[] line = new byte[length];
        input.get(start, line);
        input.position(end + 1);
        Progress progress = command(line);
        if (progress == Progress.MORE) {
            // The value has not come yet: the line is read once more when it has.
            input.position(start);
        } else {
            searched = 0;
        }
        return progress;
    }

    private static boolean isGet(ByteBuffer input, int start) {
        int at = start;
        while (input.get(at) == ' ') {
            at++;
        }
        boolean isGet = input.get(at) == 'g' && input.get(at + 1) == 'e' && input.get(at + 2) == 't';
        return at - start <= 100 && isGet && (input.get(at + 3) == ' ' || input.get(at + 3) == 's' && input.get(at + 4) == ' ');
    }

    /** The first words of a line, which ends at a zero byte if there is one. */
    private static String[] words(byte[] line) {
        List<String> words = new ArrayList<>();
        for (int at = nextWord(line, 0); at < line.length && line[at] != ZERO && words.size() < WORDS_MAX; at = nextWord(line, at)) {
            int end = endOfWord(line, at);
            words.add(new String(line, at, end - at, StandardCharsets.ISO_8859_1));
            at = end;
        }
        return words.toArray(String[]::new);
    }

    private static int nextWord(byte[] line, int from) {
        int at = from;
        while (at < line.length && line[at] == ' ') {
            at++;
        }
        return at;
    }

    private static int endOfWord(byte[] line, int from) {
        int at = from;
        while (at < line.length && line[at] != ' ' && line[at] != ZERO) {
            at++;
        }
        return at;
    }

    private Progress command(byte[] line) {
        String[] words = words(line);
        isQuiet = false;
        String name = words.length == 0 ? "" : words[0];
        switch (name) {
            case "get", "gets", "bget" -> get(line, words, name.equals("gets"), false);
            case "gat", "gats" -> get(line, words, name.equals("gats"), true);
            case "set" -> {
                return store(Mode.SET, words);
            }
            case "add" -> {
                return store(Mode.ADD, words);
            }
            case "replace" -> {
                return store(Mode.REPLACE, words);
            }
            case "append" -> {
                return store(Mode.APPEND, words);
            }
            case "prepend" -> {
                return store(Mode.PREPEND, words);
            }
            case "cas" -> {
                return store(Mode.CAS, words);
            }
            case "delete" -> delete(words);
            case "incr" -> add(words, false);
            case "decr" -> add(words, true);
            case "touch" -> touch(words);
            case "flush_all" -> flush(words);
            case "verbosity" -> verbosity(words);
            case "mn", "mg", "ms", "md", "ma", "me" -> {
                return meta.command(words);
            }
            case "quit" -> {
                return Progress.CLOSE;
            }
            default -> {
                // A page of the web may have a browser send anything behind this line.
                if (isUnknown(name) && words[words.length - 1].startsWith("HTTP/")) {
                    return Progress.CLOSE;
                }
                administration.command(words);
            }
        }
        return Progress.DONE;
    }

    /** Whether memcached knows no command that begins like this, and so compares the line with a request of HTTP. */
    private static boolean isUnknown(String name) {
        return name.length() > 1 && !name.equals("version") && "gsacidt".indexOf(name.charAt(0)) < 0 && !(name.charAt(0) == 'm' && name.length() == 2);
    }

    /** A command's last word may say that the client wants no answer. */
    private void quietIfAsked(String[] words) {
        isQuiet |= words[words.length - 1].equals("noreply");
    }

    private void answer(String line) {
        if (!isQuiet) {
            out.line(line);
        }
    }

    private void get(byte[] line, String[] words, boolean asksCas, boolean touches) {
        if (words.length < 2) {
            out.line("ERROR");
            return;
        }
        Integer seconds = touches ? Numbers.signed32(words[1]) : (Integer) 0;
        if (seconds == null) {
            out.line("CLIENT_ERROR invalid exptime argument");
            return;
        }
        int first = endOfWord(line, nextWord(line, 0));
        first = nextWord(line, touches ? endOfWord(line, nextWord(line, first)) : first);
        keys = line;
        nextKey = first;
        withCas = asksCas;
        touchExpiry = touches ? (Long) store.expiry(seconds) : null;
        for (int at = first; at < line.length && line[at] != ZERO;) {
            int end = endOfWord(line, at);
            if (end - at > Store.KEY_MAX) {
                // As in memcached: the error is the whole answer, and the keys before it were asked for all the same.
                while (nextKey < at) {
                    nextItem();
                }
                keys = null;
                out.line(BAD_FORMAT);
                return;
            }
            at = nextWord(line, end);
        }
        proceed();
    }

    /** The item of the next key, and what the command does to it; null if there is none. */
    private Item nextItem() {
        int end = endOfWord(keys, nextKey);
        byte[] key = java.util.Arrays.copyOfRange(keys, nextKey, end);
        nextKey = nextWord(keys, end);
        return touchExpiry == null ? store.get(key) : store.touch(key, touchExpiry).item();
    }

    /** Whether a get has more keys to be answered. */
    boolean isAnswering() {
        return keys != null;
    }

    /** Answers further keys, until the output is full. */
    void proceed() {
        while (!out.isFull()) {
            if (nextKey >= keys.length || keys[nextKey] == ZERO) {
                keys = null;
                out.line("END");
                return;
            }
            synchronized (store) {
                Item item = nextItem();
                if (item != null) {
                    byte[] value = store.value(item);
                    out.put("VALUE ").put(item.key).put(" " + Integer.toUnsignedString(item.flags) + " " + value.length);
                    out.put(withCas ? " " + Long.toUnsignedString(item.cas) + "\r\n" : "\r\n").put(value).put("\r\n");
                }
            }
        }
    }

    private Progress store(Mode mode, String[] words) {
        int least = mode == Mode.CAS ? 6 : 5;
        if (words.length != least && words.length != least + 1) {
            out.line("ERROR");
            return Progress.DONE;
        }
        quietIfAsked(words);
        byte[] key = Session.bytes(words[1]);
        Integer flags = Numbers.unsigned32(words[2]);
        Integer seconds = Numbers.signed32(words[3]);
        Integer length = Numbers.signed32(words[4]);
        Long expected = mode == Mode.CAS ? Numbers.unsigned(words[5]) : (Long) 0L;
        if (key.length > Store.KEY_MAX || flags == null || seconds == null || length == null || expected == null
                || length < 0 || length > Integer.MAX_VALUE - END) {
            answer(BAD_FORMAT);
            return Progress.DONE;
        }
        if (Record.bytes(key.length, length) > store.options.itemBytes()) {
            if (mode == Mode.SET) {
                store.discard(key);
            }
            answer(TOO_LARGE);
            session.skip(length + END);
            return Progress.DONE;
        }
        byte[] value = value(length);
        if (value == null) {
            return Progress.MORE;
        }
        answer(value.length != length
                ? "CLIENT_ERROR bad data chunk"
                : text(store.store(mode, key, flags, store.expiry(seconds), value, expected).outcome()));
        return Progress.DONE;
    }

    /**
     * The value behind a command's line; null if it has not come; an array of another length if the value
     * does not end where it should.
     */
    byte[] value(int length) {
        ByteBuffer input = session.input;
        if (input.remaining() < length + END) {
            return null;
        }
        byte[] value = new byte[length];
        input.get(value);
        boolean isWhole = input.get() == '\r' & input.get() == '\n';
        return isWhole ? value : new byte[length + 1];
    }

    static String text(Outcome outcome) {
        return switch (outcome) {
            case TOO_LARGE -> TOO_LARGE;
            case NO_MEMORY -> "SERVER_ERROR out of memory storing object";
            case NOT_A_NUMBER -> "CLIENT_ERROR cannot increment or decrement non-numeric value";
            default -> outcome.name();
        };
    }

    private void delete(String[] words) {
        if (words.length < 2 || words.length > 4) {
            out.line("ERROR");
            return;
        }
        if (words.length > 2) {
            quietIfAsked(words);
            boolean isNow = words[2].equals("0");
            if (words.length == 3 ? !isNow && !isQuiet : !isNow || !isQuiet) {
                answer(BAD_FORMAT + ".  Usage: delete <key> [noreply]");
                return;
            }
        }
        byte[] key = Session.bytes(words[1]);
        if (key.length > Store.KEY_MAX) {
            answer(BAD_FORMAT);
            return;
        }
        answer(store.delete(key, null) == Outcome.STORED ? "DELETED" : "NOT_FOUND");
    }

    private void add(String[] words, boolean isDecrement) {
        if (words.length != 3 && words.length != 4) {
            out.line("ERROR");
            return;
        }
        quietIfAsked(words);
        byte[] key = Session.bytes(words[1]);
        Long delta = Numbers.unsigned(words[2]);
        if (key.length > Store.KEY_MAX) {
            answer(BAD_FORMAT);
        } else if (delta == null) {
            answer("CLIENT_ERROR invalid numeric delta argument");
        } else {
            Sum sum = store.add(key, delta, isDecrement, 0);
            answer(sum.outcome() == Outcome.STORED ? Long.toUnsignedString(sum.value()) : text(sum.outcome()));
        }
    }

    private void touch(String[] words) {
        if (words.length != 3 && words.length != 4) {
            out.line("ERROR");
            return;
        }
        quietIfAsked(words);
        byte[] key = Session.bytes(words[1]);
        Integer seconds = Numbers.signed32(words[2]);
        if (key.length > Store.KEY_MAX) {
            answer(BAD_FORMAT);
        } else if (seconds == null) {
            answer("CLIENT_ERROR invalid exptime argument");
        } else {
            Change change = store.touch(key, store.expiry(seconds));
            answer(change.outcome() == Outcome.STORED ? "TOUCHED" : text(change.outcome()));
        }
    }

    private void flush(String[] words) {
        if (words.length > 3) {
            out.line("ERROR");
            return;
        }
        quietIfAsked(words);
        Integer delay = words.length == (isQuiet ? 2 : 1) ? (Integer) 0 : Numbers.signed32(words[1]);
        if (delay == null) {
            answer("CLIENT_ERROR invalid exptime argument");
            return;
        }
        store.flush(delay <= 0 ? store.now() : store.expiry(delay));
        answer("OK");
    }

    /** There is one level, whichever the client asks for. */
    private void verbosity(String[] words) {
        if (words.length != 2 && words.length != 3) {
            out.line("ERROR");
            return;
        }
        quietIfAsked(words);
        answer(Numbers.unsigned32(words[1]) == null ? BAD_FORMAT : "OK");
    }
}

package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.BiConsumer;

/** The text protocol. Lines are ISO 8859-1 here, so that keys of any bytes come through. */
final class TextProtocol {
    static final String VERSION = "1.6.18-highwire";
    private static final String BAD_FORMAT = "CLIENT_ERROR bad command line format";
    private static final int END = 2;

    private final Session session;
    private final Store store;
    private final Output out;
    private final MetaProtocol meta;
    /** How far the line has been searched for its end. */
    private int searched;

    TextProtocol(Session session) {
        this.session = session;
        this.store = session.store;
        this.out = session.output;
        this.meta = new MetaProtocol(session, this);
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
        if (searched > Session.LINE_MAX) {
            out.line("CLIENT_ERROR line too long");
            return Progress.CLOSE;
        }
        if (end == input.limit()) {
            return Progress.MORE;
        }
        searched = 0;
        int length = end - start - (end > start && input.get(end - 1) == '\r' ? 1 : 0);
        String line = new String(input.array(), input.arrayOffset() + start, length, StandardCharsets.ISO_8859_1);
        input.position(end + 1);
        Progress progress = command(line.strip().split(" +"));
        if (progress == Progress.MORE) {
            // The value has not come yet: the line is read once more when it has.
            input.position(start);
        }
        return progress;
    }

    private Progress command(String[] words) {
        switch (words[0]) {
            case "get", "gets" -> get(words, 1, words[0].equals("gets"), null);
            case "gat", "gats" -> gat(words);
            case "set" -> {
                return store(Mode.SET, words, false);
            }
            case "add" -> {
                return store(Mode.ADD, words, false);
            }
            case "replace" -> {
                return store(Mode.REPLACE, words, false);
            }
            case "append" -> {
                return store(Mode.APPEND, words, false);
            }
            case "prepend" -> {
                return store(Mode.PREPEND, words, false);
            }
            case "cas" -> {
                return store(Mode.SET, words, true);
            }
            case "delete" -> delete(words);
            case "incr" -> add(words, false);
            case "decr" -> add(words, true);
            case "touch" -> touch(words);
            case "flush_all" -> flush(words);
            case "version" -> out.line("VERSION " + VERSION);
            case "verbosity" -> verbosity(words);
            case "stats" -> stats(words);
            case "rdma" -> out.line(session.server.admit(session, words.length == 2 ? words[1] : ""));
            case "quit" -> {
                return Progress.CLOSE;
            }
            case "mn", "mg", "ms", "md", "ma", "me" -> {
                return meta.command(words);
            }
            default -> out.line("ERROR");
        }
        return Progress.DONE;
    }

    private static boolean isQuiet(String[] words) {
        return words[words.length - 1].equals("noreply");
    }

    private void answer(String line, boolean isQuiet) {
        if (!isQuiet) {
            out.line(line);
        }
    }

    private void get(String[] words, int first, boolean withCas, Long expiry) {
        if (words.length <= first) {
            out.line("ERROR");
            return;
        }
        for (int i = first; i < words.length; i++) {
            byte[] key = Session.bytes(words[i]);
            if (!Session.isKey(key)) {
                out.line(BAD_FORMAT);
                return;
            }
            synchronized (store) {
                if (expiry != null && store.touch(key, expiry) == Outcome.NO_MEMORY) {
                    out.line("SERVER_ERROR out of memory storing object");
                    return;
                }
                Item item = store.get(key);
                if (item != null) {
                    out.put("VALUE ").put(key).put(" " + Integer.toUnsignedString(item.flags) + " " + item.length);
                    out.put(withCas ? " " + Long.toUnsignedString(item.cas) + "\r\n" : "\r\n").put(store.value(item)).put("\r\n");
                }
            }
        }
        out.line("END");
    }

    private void gat(String[] words) {
        Long seconds = words.length < 3 ? null : number(words[1]);
        if (words.length < 3) {
            out.line("ERROR");
        } else if (seconds == null) {
            out.line("CLIENT_ERROR invalid exptime argument");
        } else {
            get(words, 2, words[0].equals("gats"), store.expiry(seconds));
        }
    }

    /** A signed number; null if it is none. */
    static Long number(String word) {
        try {
            return Long.parseLong(word);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    /** An unsigned number; null if it is none. */
    static Long unsigned(String word) {
        try {
            return word.startsWith("+") ? null : (Long) Long.parseUnsignedLong(word);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    private Progress store(Mode mode, String[] words, boolean withCas) {
        int least = withCas ? 6 : 5;
        if (words.length != least && words.length != least + 1) {
            out.line("ERROR");
            return Progress.DONE;
        }
        boolean isQuiet = words.length == least + 1 && isQuiet(words);
        byte[] key = Session.bytes(words[1]);
        Long flags = unsigned(words[2]);
        Long seconds = number(words[3]);
        Long length = number(words[4]);
        Long expected = withCas ? unsigned(words[5]) : (Long) 0L;
        if (length == null || length < 0 || length > Integer.MAX_VALUE - END) {
            out.line(BAD_FORMAT);
            return Progress.DONE;
        }
        if (!Session.isKey(key) || flags == null || flags >>> 32 != 0 || seconds == null || expected == null) {
            out.line(BAD_FORMAT);
            session.skip(length + END);
            return Progress.DONE;
        }
        if (Record.bytes(key.length, length) > store.options.itemBytes()) {
            // The client wanted to replace the old value, so that must not stay.
            store.delete(key, 0);
            answer("SERVER_ERROR object too large for cache", isQuiet);
            session.skip(length + END);
            return Progress.DONE;
        }
        byte[] value = value(length.intValue());
        if (value == null) {
            return Progress.MORE;
        }
        if (value.length != length) {
            out.line("CLIENT_ERROR bad data chunk");
            return Progress.DONE;
        }
        if (withCas && expected == 0) {
            // No item has the number 0, which means any in the store.
            answer(store.find(key) == null ? "NOT_FOUND" : "EXISTS", isQuiet);
            return Progress.DONE;
        }
        Outcome outcome = store.store(mode, key, flags.intValue(), store.expiry(seconds), value, expected);
        answer(text(outcome), isQuiet);
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
        if (input.get() == '\r' && input.get() == '\n') {
            return value;
        }
        // Part of the error, up to the beginning of the client's next line.
        input.position(input.position() - 1);
        session.skipLine();
        return new byte[length + 1];
    }

    static String text(Outcome outcome) {
        return switch (outcome) {
            case TOO_LARGE -> "SERVER_ERROR object too large for cache";
            case NO_MEMORY -> "SERVER_ERROR out of memory storing object";
            case NOT_A_NUMBER -> "CLIENT_ERROR cannot increment or decrement non-numeric value";
            default -> outcome.name();
        };
    }

    private void delete(String[] words) {
        boolean isQuiet = words.length > 2 && isQuiet(words);
        boolean hasForm = words.length == 2 || words.length == 3 && (isQuiet || words[2].equals("0"))
                || words.length == 4 && isQuiet && words[2].equals("0");
        if (!hasForm) {
            out.line(words.length == 1 ? "ERROR" : BAD_FORMAT + ".  Usage: delete <key> [noreply]");
            return;
        }
        byte[] key = Session.bytes(words[1]);
        if (!Session.isKey(key)) {
            out.line(BAD_FORMAT);
            return;
        }
        answer(store.delete(key, 0) == Outcome.STORED ? "DELETED" : "NOT_FOUND", isQuiet);
    }

    private void add(String[] words, boolean isDecrement) {
        if (words.length != 3 && words.length != 4) {
            out.line("ERROR");
            return;
        }
        byte[] key = Session.bytes(words[1]);
        Long delta = unsigned(words[2]);
        if (!Session.isKey(key)) {
            out.line(BAD_FORMAT);
        } else if (delta == null) {
            out.line("CLIENT_ERROR invalid numeric delta argument");
        } else {
            Sum sum = store.add(key, delta, isDecrement, 0);
            boolean isStored = sum.outcome() == Outcome.STORED;
            answer(isStored ? Long.toUnsignedString(sum.value()) : text(sum.outcome()), isQuiet(words));
        }
    }

    private void touch(String[] words) {
        if (words.length != 3 && words.length != 4) {
            out.line("ERROR");
            return;
        }
        byte[] key = Session.bytes(words[1]);
        Long seconds = number(words[2]);
        if (!Session.isKey(key)) {
            out.line(BAD_FORMAT);
        } else if (seconds == null) {
            out.line("CLIENT_ERROR invalid exptime argument");
        } else {
            Outcome outcome = store.touch(key, store.expiry(seconds));
            answer(outcome == Outcome.STORED ? "TOUCHED" : text(outcome), isQuiet(words));
        }
    }

    private void flush(String[] words) {
        boolean isQuiet = isQuiet(words);
        int given = words.length - (isQuiet ? 1 : 0);
        Long delay = given == 1 ? (Long) 0L : number(words[1]);
        if (given > 2 || delay == null) {
            out.line(given > 2 ? "ERROR" : BAD_FORMAT);
            return;
        }
        store.flush(delay == 0 ? store.now() : store.expiry(delay));
        answer("OK", isQuiet);
    }

    /** There is one level, whichever the client asks for. */
    private void verbosity(String[] words) {
        boolean isQuiet = isQuiet(words);
        boolean hasForm = words.length == (isQuiet ? 3 : 2) && unsigned(words[1]) != null;
        answer(words.length == 1 ? "ERROR" : hasForm ? "OK" : BAD_FORMAT, isQuiet);
    }

    private void stats(String[] words) {
        BiConsumer<String, Object> visitor = (name, value) -> out.line("STAT " + name + " " + value);
        String what = words.length == 1 ? "" : words[1];
        switch (what) {
            case "" -> {
                session.server.stats(visitor);
                store.stats(visitor);
            }
            case "items", "slabs" -> store.slabStats(what.equals("items"), visitor);
            case "settings" -> settings(visitor);
            case "reset" -> {
                store.counters.reset();
                out.line("RESET");
                return;
            }
            default -> {
                out.line("ERROR");
                return;
            }
        }
        out.line("END");
    }

    private void settings(BiConsumer<String, Object> visitor) {
        visitor.accept("maxbytes", store.options.bytes());
        visitor.accept("item_size_max", store.options.itemBytes());
        visitor.accept("chunk_rest_ms", store.options.restMillis());
        visitor.accept("evictions", "on");
        visitor.accept("cas_enabled", "yes");
        visitor.accept("flush_enabled", "yes");
        visitor.accept("curr_connections", store.counters.get(Counter.curr_connections));
    }
}

package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

/** The meta commands: two letters, a key, and flags of one letter, some with a token behind it. */
final class MetaProtocol {
    /** An error of a command, with the text of its answer. */
    private static final class Refusal extends Exception {
        private static final long serialVersionUID = 1;

        Refusal(String line) {
            super(line, null, false, false);
        }
    }

    private static final String BAD_TOKEN = "CLIENT_ERROR bad token in command line format";
    private static final String BAD_FORMAT = "CLIENT_ERROR bad command line format";
    private static final Map<String, String> KNOWN = Map.of(
            "mg", "bcfhklOqstvNRT", "ms", "bcfkOqsCFIMNT", "md", "bkOqCITx", "ma", "bckOqtvCDJMNT", "me", "b");
    /** Flags that need a token. */
    private static final String WITH_TOKEN = "ORTCFDJMN";
    private static final String NUMBERS = "RTCFDJN";

    private final Session session;
    private final TextProtocol text;
    private final Store store;
    private final Output out;

    /** A command's key and flags. */
    private final class Request {
        final byte[] key;
        final String named;
        final Map<Character, String> flags = new HashMap<>();
        final String[] words;
        final int first;

        Request(String[] words, int first) throws Refusal {
            this.words = words;
            this.first = first;
            this.named = words[1];
            String known = KNOWN.get(words[0]);
            for (int i = first; i < words.length; i++) {
                char flag = words[i].charAt(0);
                String token = words[i].substring(1);
                if (known.indexOf(flag) < 0) {
                    throw new Refusal("CLIENT_ERROR invalid flag");
                }
                if (flags.put(flag, token) != null) {
                    throw new Refusal("CLIENT_ERROR duplicate flag");
                }
                if (token.isEmpty() && WITH_TOKEN.indexOf(flag) >= 0) {
                    throw new Refusal(BAD_TOKEN);
                }
                if (NUMBERS.indexOf(flag) >= 0) {
                    number(flag, 0);
                }
            }
            try {
                this.key = has('b') ? Base64.getDecoder().decode(named) : Session.bytes(named);
            } catch (IllegalArgumentException e) {
                throw new Refusal("CLIENT_ERROR error decoding key");
            }
            boolean isKey = has('b') ? key.length > 0 && key.length <= Store.KEY_MAX : Session.isKey(key);
            if (!isKey) {
                throw new Refusal(BAD_FORMAT);
            }
        }

        boolean has(char flag) {
            return flags.containsKey(flag);
        }

        long number(char flag, long otherwise) throws Refusal {
            if (!has(flag)) {
                return otherwise;
            }
            Long number = flag == 'C' || flag == 'D' || flag == 'J' || flag == 'F'
                    ? TextProtocol.unsigned(flags.get(flag))
                    : TextProtocol.number(flags.get(flag));
            if (number == null) {
                throw new Refusal(BAD_TOKEN);
            }
            return number;
        }

        /** An expiry, from seconds. */
        long expiry(char flag, long otherwise) throws Refusal {
            return has(flag) ? store.expiry(number(flag, 0)) : otherwise;
        }

        char mode(char otherwise) {
            return has('M') ? Character.toUpperCase(flags.get('M').charAt(0)) : otherwise;
        }
    }

    MetaProtocol(Session session, TextProtocol text) {
        this.session = session;
        this.text = text;
        this.store = session.store;
        this.out = session.output;
    }

    Progress command(String[] words) {
        store.counters.count(Counter.cmd_meta);
        if (words[0].equals("mn")) {
            out.line("MN");
            return Progress.DONE;
        }
        if (words[0].equals("ms")) {
            return set(words);
        }
        try {
            if (words.length < 2) {
                throw new Refusal(BAD_FORMAT);
            }
            Request request = new Request(words, 2);
            synchronized (store) {
                switch (words[0]) {
                    case "mg" -> get(request);
                    case "md" -> delete(request);
                    case "ma" -> add(request);
                    default -> debug(request);
                }
            }
        } catch (Refusal e) {
            out.line(e.getMessage());
        }
        return Progress.DONE;
    }

    private void get(Request request) throws Refusal {
        boolean wins = false;
        Item item = store.peek(request.key);
        boolean hadFetch = item != null && item.wasFetched;
        item = store.get(request.key);
        if (item == null && request.has('N')) {
            store.store(Mode.SET, request.key, 0, request.expiry('N', 0), new byte[0], 0);
            item = store.peek(request.key);
            wins = item != null;
        }
        if (item == null) {
            answer(request, "EN", true);
            return;
        }
        if (request.has('T')) {
            store.touch(request.key, request.expiry('T', 0));
        }
        boolean isLate = request.has('R') && item.expiry != 0
                && (item.expiry - store.now()) / 1000 < request.number('R', 0);
        boolean isTaken = item.isWon;
        wins |= (item.isStale || isLate) && !isTaken;
        item.isWon |= wins;
        String mark = (item.isStale ? " X" : "") + (wins ? " W" : isTaken ? " Z" : "");
        String flags = flags(request, item, hadFetch) + mark;
        if (request.has('v')) {
            out.put("VA " + item.length + flags + "\r\n").put(store.value(item)).put("\r\n");
        } else {
            answer(request, "HD", flags, false);
        }
    }

    /** The flags that come back, in the order in which they were asked for. */
    private String flags(Request request, Item item, boolean wasFetched) {
        StringBuilder flags = new StringBuilder();
        for (int i = request.first; i < request.words.length; i++) {
            char flag = request.words[i].charAt(0);
            switch (flag) {
                case 'k', 'O', 'b' -> flags.append(echo(request, flag));
                case 'c' -> flags.append(" c").append(Long.toUnsignedString(item.cas));
                case 'f' -> flags.append(" f").append(Integer.toUnsignedString(item.flags));
                case 's' -> flags.append(" s").append(item.length);
                case 't' -> flags.append(" t").append(item.expiry == 0 ? -1 : (item.expiry - store.now() + 999) / 1000);
                case 'h' -> flags.append(wasFetched ? " h1" : " h0");
                case 'l' -> flags.append(" l").append((store.now() - item.accessed) / 1000);
                default -> { }
            }
        }
        return flags.toString();
    }

    private static String echo(Request request, char flag) {
        return switch (flag) {
            case 'k' -> " k" + request.named;
            case 'O' -> " O" + request.flags.get('O');
            case 'b' -> request.has('k') ? " b" : "";
            default -> "";
        };
    }

    /** An answer without an item. A quiet command omits it if {@code isUsual}. */
    private void answer(Request request, String code, boolean isUsual) {
        StringBuilder flags = new StringBuilder();
        for (int i = request.first; i < request.words.length && !code.equals("EN"); i++) {
            flags.append(echo(request, request.words[i].charAt(0)));
        }
        answer(request, code, flags.toString(), isUsual);
    }

    private void answer(Request request, String code, String flags, boolean isUsual) {
        if (!isUsual || !request.has('q')) {
            out.line(code + flags);
        }
    }

    private void answer(Request request, Outcome outcome, String flags) {
        switch (outcome) {
            case STORED -> answer(request, "HD", flags, true);
            case NOT_STORED -> answer(request, "NS", false);
            case EXISTS -> answer(request, "EX", false);
            // A missing item need not be deleted.
            case NOT_FOUND -> answer(request, "NF", request.words[0].equals("md"));
            default -> out.line(TextProtocol.text(outcome));
        }
    }

    private Progress set(String[] words) {
        Long length = words.length < 3 ? null : TextProtocol.number(words[2]);
        if (length == null || length < 0 || length > Integer.MAX_VALUE - 2) {
            out.line(words.length < 2 ? BAD_FORMAT : "CLIENT_ERROR bad data chunk");
            return Progress.DONE;
        }
        Request request;
        try {
            request = new Request(words, 3);
            if (Record.bytes(request.key.length, length) > store.options.itemBytes()) {
                store.delete(request.key, 0);
                throw new Refusal("SERVER_ERROR object too large for cache");
            }
        } catch (Refusal e) {
            out.line(e.getMessage());
            session.skip(length + 2);
            return Progress.DONE;
        }
        byte[] value = text.value(length.intValue());
        if (value == null) {
            return Progress.MORE;
        }
        try {
            if (value.length != length) {
                throw new Refusal("CLIENT_ERROR bad data chunk");
            }
            synchronized (store) {
                set(request, value);
            }
        } catch (Refusal e) {
            out.line(e.getMessage());
        }
        return Progress.DONE;
    }

    private void set(Request request, byte[] value) throws Refusal {
        Mode mode = switch (request.mode('S')) {
            case 'S' -> Mode.SET;
            case 'E' -> Mode.ADD;
            case 'R' -> Mode.REPLACE;
            case 'A' -> Mode.APPEND;
            case 'P' -> Mode.PREPEND;
            default -> throw new Refusal("CLIENT_ERROR invalid mode for ms");
        };
        long flags = request.number('F', 0);
        if (flags >>> 32 != 0) {
            throw new Refusal(BAD_TOKEN);
        }
        Item item = store.peek(request.key);
        if (item == null && request.has('N') && (mode == Mode.APPEND || mode == Mode.PREPEND)) {
            mode = Mode.SET;
        }
        long expected = request.number('C', 0);
        boolean becomesStale = request.has('I') && item != null && Long.compareUnsigned(expected, item.cas) < 0;
        long expiry = request.expiry(request.has('T') ? 'T' : 'N', 0);
        Outcome outcome = store.store(mode, request.key, (int) flags, expiry, value, becomesStale ? 0 : expected);
        item = store.peek(request.key);
        if (item != null && outcome == Outcome.STORED) {
            item.isStale = becomesStale;
            answer(request, outcome, flags(request, item, false));
        } else {
            answer(request, outcome, flagsOf(request));
        }
    }

    private String flagsOf(Request request) {
        StringBuilder flags = new StringBuilder();
        for (int i = request.first; i < request.words.length; i++) {
            flags.append(echo(request, request.words[i].charAt(0)));
        }
        return flags.toString();
    }

    private void delete(Request request) throws Refusal {
        long expected = request.number('C', 0);
        Outcome outcome;
        if (request.has('I')) {
            outcome = store.invalidate(request.key, expected, request.has('T') ? (Long) request.expiry('T', 0) : null);
        } else if (request.has('x')) {
            // The item stays, without its value and its flags.
            Item item = store.peek(request.key);
            outcome = item == null
                    ? Outcome.NOT_FOUND
                    : store.store(Mode.SET, request.key, 0, request.expiry('T', item.expiry), new byte[0], expected);
        } else {
            outcome = store.delete(request.key, expected);
        }
        answer(request, outcome, flagsOf(request));
    }

    private void add(Request request) throws Refusal {
        boolean isDecrement = switch (request.mode('I')) {
            case 'I', '+' -> false;
            case 'D', '-' -> true;
            default -> throw new Refusal("CLIENT_ERROR invalid mode for ma");
        };
        long delta = request.number('D', 1);
        Sum sum = store.add(request.key, delta, isDecrement, request.number('C', 0));
        if (sum.outcome() == Outcome.NOT_FOUND && request.has('N')) {
            long first = request.number('J', 0);
            byte[] digits = Session.bytes(Long.toUnsignedString(first));
            sum = new Sum(store.store(Mode.ADD, request.key, 0, request.expiry('N', 0), digits, 0), first);
        } else if (sum.outcome() == Outcome.STORED && request.has('T')) {
            store.touch(request.key, request.expiry('T', 0));
        }
        Item item = sum.outcome() == Outcome.STORED ? store.peek(request.key) : null;
        if (item == null) {
            answer(request, sum.outcome(), flagsOf(request));
        } else if (request.has('v')) {
            String digits = Long.toUnsignedString(sum.value());
            out.line("VA " + digits.length() + flags(request, item, false)).line(digits);
        } else {
            answer(request, sum.outcome(), flags(request, item, false));
        }
    }

    private void debug(Request request) {
        Item item = store.peek(request.key);
        if (item == null) {
            out.line("EN");
            return;
        }
        long now = store.now();
        out.line("ME " + request.named + " exp=" + (item.expiry == 0 ? -1 : (item.expiry - now) / 1000)
                + " la=" + (now - item.accessed) / 1000 + " cas=" + Long.toUnsignedString(item.cas)
                + " fetch=" + (item.wasFetched ? "yes" : "no") + " cls=" + item.slab.number
                + " size=" + Record.bytes(item.key.length, item.length));
    }
}

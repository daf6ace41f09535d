package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.memcached.MetaRequest.Refusal;
import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Change;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;

/** The meta commands: two letters, a key, and flags of one letter, some with a token behind it. */
final class MetaProtocol {
    /** Words of a command; a longer one is refused. */
    private static final int WORDS_MAX = 19;
    /** Flags for which memcached keeps what an item was before the command until it has answered. */
    private static final String FLAGS_OF_OLD_STATE = "hluTNR";

    private final Session session;
    private final TextProtocol text;
    private final Store store;
    private final Output out;

    MetaProtocol(Session session, TextProtocol text) {
        this.session = session;
        this.text = text;
        this.store = session.store;
        this.out = session.output;
    }

    Progress command(String[] words) {
        store.counters.count(Counter.cmd_meta);
        try {
            switch (words[0]) {
                case "mn" -> out.line("MN");
                case "ms" -> {
                    return set(words);
                }
                case "me" -> debug(words);
                default -> {
                    if (words.length < 2) {
                        throw new Refusal("ERROR");
                    }
                    synchronized (store) {
                        switch (words[0]) {
                            case "mg" -> get(words);
                            case "md" -> delete(words);
                            default -> add(words);
                        }
                    }
                }
            }
        } catch (Refusal e) {
            out.line(e.getMessage());
        }
        return Progress.DONE;
    }

    private static void checkLengths(String[] words, String otherwise) throws Refusal {
        if (words[1].length() > Store.KEY_MAX) {
            throw new Refusal(TextProtocol.BAD_FORMAT);
        }
        if (words.length > WORDS_MAX) {
            throw new Refusal(otherwise);
        }
    }

    private void get(String[] words) throws Refusal {
        checkLengths(words, "CLIENT_ERROR options flags are too long");
        MetaRequest request = new MetaRequest(words, 2);
        Item item = store.peek(request.key);
        if (item != null && request.hasLongOpaque() && FLAGS_OF_OLD_STATE.chars().noneMatch(flag -> request.has((char) flag))) {
            // memcached looks at the token when it has found the item.
            store.bump(item);
        }
        request.checkOpaque();
        boolean isMade = item == null && request.vivifies;
        if (isMade) {
            item = store.store(Mode.SET, request.key, 0, 0, new byte[0], 0).item();
        }
        if (item == null) {
            store.counters.count(Counter.cmd_get);
            store.counters.count(Counter.get_misses);
            if (!request.has('q')) {
                out.line("EN" + request.echoes());
            }
            return;
        }
        long expiry = item.expiry;
        boolean wins = isMade;
        StringBuilder flags = new StringBuilder();
        for (int i = 2; i < words.length; i++) {
            switch (words[i].charAt(0)) {
                case 'T' -> expiry = store.expiry(request.seconds);
                case 'N' -> expiry = isMade ? store.expiry(request.vivifySeconds) : expiry;
                case 'R' -> wins |= !item.isWon && !isMade && expiry != 0
                        && expiry / 1000 < store.expiry(request.recacheSeconds) / 1000;
                case 's' -> flags.append(" s").append(item.length);
                case 't' -> flags.append(" t").append(timeToLive(expiry));
                case 'c' -> flags.append(" c").append(Long.toUnsignedString(item.cas));
                case 'f' -> flags.append(" f").append(Integer.toUnsignedString(item.flags));
                case 'l' -> flags.append(" l").append((store.now() - item.accessed) / 1000);
                case 'h' -> flags.append(item.wasFetched ? " h1" : " h0");
                default -> flags.append(request.echo(words[i], item.isBinaryKey));
            }
        }
        flags.append(item.isWon ? " Z" : "").append(item.isStale ? " X" : "");
        wins |= item.isStale && !item.isWon;
        flags.append(wins ? " W" : "");
        item.isWon |= wins;
        byte[] value = request.has('v') ? store.value(item) : null;
        count(request.hasExpiry);
        if (!request.has('u')) {
            store.bump(item);
        }
        store.expire(item, expiry);
        if (value == null) {
            out.line("HD" + flags);
        } else {
            out.put("VA " + value.length + flags + "\r\n").put(value).put("\r\n");
        }
    }

    private void count(boolean touches) {
        store.counters.count(touches ? Counter.cmd_touch : Counter.cmd_get);
        store.counters.count(touches ? Counter.touch_hits : Counter.get_hits);
    }

    /** Seconds that are left, as memcached writes them; −1 is for ever. */
    private String timeToLive(long expiry) {
        return expiry == 0 ? "-1" : Integer.toUnsignedString((int) Math.ceilDiv(expiry - store.now(), 1000));
    }

    private Progress set(String[] words) throws Refusal {
        if (words.length < 3) {
            throw new Refusal(words.length < 2 ? "ERROR" : TextProtocol.BAD_FORMAT);
        }
        checkLengths(words, "CLIENT_ERROR options flags too long");
        Integer length = Numbers.signed32(words[2]);
        if (length == null || length < 0 || length > Integer.MAX_VALUE - 2) {
            throw new Refusal(TextProtocol.BAD_FORMAT);
        }
        MetaRequest request;
        Mode mode;
        try {
            request = new MetaRequest(words, 3);
            mode = mode(request);
            request.checkOpaque();
            if (Record.bytes(request.key.length, length) > store.options.itemBytes()) {
                store.discard(request.key);
                throw new Refusal(TextProtocol.TOO_LARGE);
            }
        } catch (Refusal e) {
            session.skip(length + 2L);
            throw e;
        }
        byte[] value = text.value(length);
        if (value == null) {
            return Progress.MORE;
        }
        if (value.length != length) {
            throw new Refusal("CLIENT_ERROR bad data chunk");
        }
        synchronized (store) {
            set(request, mode, value);
        }
        return Progress.DONE;
    }

    private static Mode mode(MetaRequest request) throws Refusal {
        boolean withCas = request.expected != null;
        return switch (request.mode) {
            case 0, 'S' -> withCas ? Mode.CAS : Mode.SET;
            case 'R' -> withCas ? Mode.CAS : Mode.REPLACE;
            case 'E' -> Mode.ADD;
            case 'A' -> Mode.APPEND;
            case 'P' -> Mode.PREPEND;
            default -> throw new Refusal("CLIENT_ERROR invalid mode for ms M token");
        };
    }

    private void set(MetaRequest request, Mode mode, byte[] value) throws Refusal {
        long expiry = store.expiry(request.seconds);
        long expected = request.expected == null ? 0 : request.expected;
        Mode how = mode;
        boolean joins = mode == Mode.APPEND || mode == Mode.PREPEND;
        if (joins && request.vivifies && store.peek(request.key) == null) {
            how = Mode.SET;
            expiry = store.expiry(request.vivifySeconds);
        }
        Change change = store.store(how, request.key, request.clientFlags, expiry, value, expected, request.has('I'), request.isBinaryKey);
        StringBuilder flags = new StringBuilder();
        for (int i = request.first; i < request.words.length; i++) {
            flags.append(request.words[i].charAt(0) == 'c'
                    ? " c" + (change.item() == null ? "0" : Long.toUnsignedString(change.item().cas))
                    : request.echo(request.words[i], request.isBinaryKey));
        }
        answer(request, change.outcome(), flags.toString());
    }

    /** An answer without a value. A quiet command omits the usual one. */
    private void answer(MetaRequest request, Outcome outcome, String flags) throws Refusal {
        String code = switch (outcome) {
            case STORED -> "HD";
            case NOT_STORED -> "NS";
            case EXISTS -> "EX";
            case NOT_FOUND -> "NF";
            default -> throw new Refusal(TextProtocol.text(outcome));
        };
        if (outcome != Outcome.STORED || !request.has('q')) {
            out.line(code + flags);
        }
    }

    /** The request of a command whose flags get one error for all that can be wrong with them. */
    private static MetaRequest request(String[] words) throws Refusal {
        checkLengths(words, "CLIENT_ERROR options flags too long");
        try {
            return new MetaRequest(words, 2);
        } catch (Refusal e) {
            throw new Refusal("CLIENT_ERROR invalid or duplicate flag");
        }
    }

    private void delete(String[] words) throws Refusal {
        MetaRequest request = request(words);
        request.checkOpaque();
        Outcome outcome;
        if (request.has('I')) {
            outcome = store.invalidate(request.key, request.expected, request.hasExpiry ? (Long) store.expiry(request.seconds) : null);
        } else if (request.keepsItem) {
            // The item stays, without its value and its flags.
            Item item = store.peek(request.key);
            long expiry = item == null || request.hasExpiry ? store.expiry(request.seconds) : item.expiry;
            Mode mode = request.expected == null ? Mode.REPLACE : Mode.CAS;
            long expected = request.expected == null ? 0 : request.expected;
            outcome = store.store(mode, request.key, 0, expiry, new byte[0], expected).outcome();
            outcome = outcome == Outcome.NOT_STORED ? Outcome.NOT_FOUND : outcome;
        } else {
            outcome = store.delete(request.key, request.expected);
        }
        answer(request, outcome, request.echoes());
    }

    private void add(String[] words) throws Refusal {
        MetaRequest request = request(words);
        boolean isDecrement = switch (request.mode) {
            case 0, 'I', '+' -> false;
            case 'D', '-' -> true;
            default -> throw new Refusal("CLIENT_ERROR invalid mode for ma M token");
        };
        request.checkOpaque();
        Sum sum = store.add(request.key, request.delta, isDecrement, request.expected == null ? 0 : request.expected);
        boolean isMade = sum.outcome() == Outcome.NOT_FOUND && request.vivifies;
        if (isMade) {
            byte[] digits = Session.bytes(Long.toUnsignedString(request.initial));
            Change change = store.store(Mode.ADD, request.key, 0, 0, digits, 0);
            sum = new Sum(change.outcome(), request.initial, change.item());
        }
        Item item = sum.item();
        if (item == null) {
            answer(request, sum.outcome(), request.echoes());
            return;
        }
        long expiry = item.expiry;
        StringBuilder flags = new StringBuilder();
        for (int i = 2; i < words.length; i++) {
            switch (words[i].charAt(0)) {
                case 'c' -> flags.append(" c").append(Long.toUnsignedString(item.cas));
                case 't' -> flags.append(" t").append(timeToLive(expiry));
                case 'T' -> expiry = store.expiry(request.seconds);
                case 'N' -> expiry = isMade ? store.expiry(request.vivifySeconds) : expiry;
                default -> flags.append(request.echo(words[i], request.isBinaryKey));
            }
        }
        store.expire(item, expiry);
        // As in memcached, a quiet client hears of a number that was made.
        if (request.has('q') && !isMade) {
            return;
        }
        if (request.has('v')) {
            String digits = Long.toUnsignedString(sum.value());
            out.line("VA " + digits.length() + flags).line(digits);
        } else {
            out.line("HD" + flags);
        }
    }

    private void debug(String[] words) throws Refusal {
        if (words.length < 2 || words[1].length() > Store.KEY_MAX) {
            throw new Refusal(TextProtocol.BAD_FORMAT);
        }
        byte[] key = Session.bytes(words[1]);
        if (words.length > 2 && words[2].equals("b")) {
            key = MetaRequest.decode(key);
            if (key.length == 0) {
                throw new Refusal(TextProtocol.BAD_FORMAT);
            }
        }
        synchronized (store) {
            Item item = store.peek(key);
            if (item == null) {
                out.line("EN");
                return;
            }
            long now = store.now();
            out.line("ME " + MetaRequest.name(key, item.isBinaryKey)
                    + " exp=" + (item.expiry == 0 ? -1 : (int) Math.floorDiv(now - item.expiry, 1000))
                    + " la=" + (now - item.accessed) / 1000 + " cas=" + Long.toUnsignedString(item.cas)
                    + " fetch=" + (item.wasFetched ? "yes" : "no") + " cls=" + item.slab.number
                    + " size=" + Record.bytes(item.key.length, item.length));
        }
    }
}

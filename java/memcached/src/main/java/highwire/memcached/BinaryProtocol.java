package highwire.memcached;

import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.memcached.Store.Sum;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The binary protocol: 24 bytes of header, then extras, key and value. All numbers are big-endian.
 *
 * <pre>
 *   0 magic │ 1 opcode │ 2 key length u16 │ 4 extras length │ 5 data type │ 6 vbucket or status u16 │ 8 body length u32 │ 12 opaque u32 │ 16 cas u64
 * </pre>
 */
final class BinaryProtocol {
    static final byte REQUEST = (byte) 0x80;
    private static final byte RESPONSE = (byte) 0x81;
    private static final int HEADER = 24;
    /** An expiry of incr and decr: the item is not made where there is none. */
    private static final int NOT_MADE = 0xFFFF_FFFF;

    private static final int NOT_FOUND = 1;
    private static final int EXISTS = 2;
    private static final int TOO_LARGE = 3;
    private static final int INVALID = 4;
    private static final int NOT_STORED = 5;
    private static final int NOT_A_NUMBER = 6;
    private static final int UNKNOWN = 0x81;
    private static final int NO_MEMORY = 0x82;

    private final Session session;
    private final Store store;
    private final Output out;
    private int opcode;
    private int opaque;
    private long cas;
    private byte[] key;
    private ByteBuffer extras;
    private byte[] value;

    BinaryProtocol(Session session) {
        this.session = session;
        this.store = session.store;
        this.out = session.output;
    }

    /** Takes the next request, if it is complete. */
    Progress next() {
        ByteBuffer input = session.input;
        if (input.remaining() < HEADER) {
            return Progress.MORE;
        }
        int at = input.position();
        opcode = input.get(at + 1) & 0xFF;
        int keyLength = input.getShort(at + 2) & 0xFFFF;
        int extrasLength = input.get(at + 4) & 0xFF;
        long body = Integer.toUnsignedLong(input.getInt(at + 8));
        opaque = input.getInt(at + 12);
        cas = input.getLong(at + 16);
        if (keyLength + extrasLength > body || keyLength > Store.KEY_MAX) {
            // The start of the next request is unknown if the lengths contradict each other.
            input.position(at + HEADER);
            session.skip(body);
            status(INVALID, "Invalid arguments");
            return keyLength + extrasLength > body ? Progress.CLOSE : Progress.DONE;
        }
        if (Record.bytes(keyLength, body - keyLength - extrasLength) > store.options.itemBytes()) {
            if (input.remaining() < HEADER + extrasLength + keyLength) {
                return Progress.MORE;
            }
            byte[] named = new byte[keyLength];
            input.position(at + HEADER + extrasLength).get(named);
            store.delete(named, 0);
            session.skip(body - extrasLength - keyLength);
            status(TOO_LARGE, "Too large.");
            return Progress.DONE;
        }
        if (input.remaining() < HEADER + body) {
            return Progress.MORE;
        }
        input.position(at + HEADER);
        byte[] more = new byte[extrasLength];
        input.get(more);
        extras = ByteBuffer.wrap(more);
        key = new byte[keyLength];
        input.get(key);
        value = new byte[(int) body - extrasLength - keyLength];
        input.get(value);
        synchronized (store) {
            return command();
        }
    }

    private Progress command() {
        switch (opcode) {
            case 0x00, 0x09, 0x0c, 0x0d -> get(opcode == 0x09 || opcode == 0x0d, opcode >= 0x0c, null);
            case 0x01, 0x11 -> store(Mode.SET, opcode == 0x11);
            case 0x02, 0x12 -> store(Mode.ADD, opcode == 0x12);
            case 0x03, 0x13 -> store(Mode.REPLACE, opcode == 0x13);
            case 0x04, 0x14 -> delete(opcode == 0x14);
            case 0x05, 0x15 -> add(false, opcode == 0x15);
            case 0x06, 0x16 -> add(true, opcode == 0x16);
            case 0x07, 0x17 -> {
                if (opcode == 0x07) {
                    answer(0, 0, new byte[0], new byte[0], new byte[0]);
                }
                return Progress.CLOSE;
            }
            case 0x08, 0x18 -> flush(opcode == 0x18);
            case 0x0a, 0x1b -> answer(0, 0, new byte[0], new byte[0], new byte[0]);
            case 0x0b -> answer(0, 0, new byte[0], new byte[0], Session.bytes(TextProtocol.VERSION));
            case 0x0e, 0x19 -> join(Mode.APPEND, opcode == 0x19);
            case 0x0f, 0x1a -> join(Mode.PREPEND, opcode == 0x1a);
            case 0x10 -> stats();
            case 0x1c -> touch();
            case 0x1d, 0x1e, 0x23, 0x24 -> getAndTouch();
            default -> status(UNKNOWN, "Unknown command");
        }
        return Progress.DONE;
    }

    /** Whether the request has the parts that its command has; answers if it has not. */
    private boolean hasForm(int extrasLength, boolean withKey, boolean withValue) {
        boolean isSound = extras.capacity() == extrasLength && key.length > 0 == withKey && (withValue || value.length == 0);
        if (!isSound) {
            status(INVALID, "Invalid arguments");
        }
        return isSound;
    }

    private void answer(int status, long unique, byte[] withExtras, byte[] withKey, byte[] withValue) {
        int body = withExtras.length + withKey.length + withValue.length;
        out.room(HEADER + body).put(RESPONSE).put((byte) opcode).putShort((short) withKey.length)
                .put((byte) withExtras.length).put((byte) 0).putShort((short) status).putInt(body).putInt(opaque).putLong(unique)
                .put(withExtras).put(withKey).put(withValue);
    }

    private void status(int status, String text) {
        answer(status, 0, new byte[0], new byte[0], Session.bytes(text));
    }

    private void outcome(Outcome outcome, boolean isQuiet) {
        switch (outcome) {
            case STORED -> {
                if (!isQuiet) {
                    Item item = store.peek(key);
                    answer(0, item == null ? 0 : item.cas, new byte[0], new byte[0], new byte[0]);
                }
            }
            case NOT_STORED -> status(NOT_STORED, "Not stored.");
            case EXISTS -> status(EXISTS, "Data exists for key.");
            case NOT_FOUND -> status(NOT_FOUND, "Not found");
            case TOO_LARGE -> status(TOO_LARGE, "Too large.");
            case NO_MEMORY -> status(NO_MEMORY, "Out of memory");
            case NOT_A_NUMBER -> status(NOT_A_NUMBER, "Non-numeric server-side value for incr or decr");
        }
    }

    private void get(boolean isQuiet, boolean withKey, Long expiry) {
        if (expiry == null && !hasForm(0, true, false)) {
            return;
        }
        if (expiry != null) {
            store.touch(key, expiry);
        }
        Item item = store.get(key);
        if (item != null) {
            byte[] flags = ByteBuffer.allocate(4).putInt(item.flags).array();
            answer(0, item.cas, flags, withKey ? key : new byte[0], store.value(item));
        } else if (!isQuiet) {
            if (withKey) {
                answer(NOT_FOUND, 0, new byte[0], key, new byte[0]);
            } else {
                status(NOT_FOUND, "Not found");
            }
        }
    }

    private void store(Mode mode, boolean isQuiet) {
        if (!hasForm(8, true, true)) {
            return;
        }
        int flags = extras.getInt();
        long expiry = store.expiry(extras.getInt());
        Mode how = cas != 0 && mode == Mode.ADD ? Mode.SET : mode;
        Outcome outcome = store.store(how, key, flags, expiry, value, cas);
        // Here the status tells why: add finds an item, replace finds none.
        boolean isThere = outcome == Outcome.NOT_STORED && mode == Mode.ADD;
        outcome(outcome == Outcome.NOT_STORED ? isThere ? Outcome.EXISTS : Outcome.NOT_FOUND : outcome, isQuiet);
    }

    private void join(Mode mode, boolean isQuiet) {
        if (hasForm(0, true, true)) {
            outcome(store.store(mode, key, 0, 0, value, cas), isQuiet);
        }
    }

    private void delete(boolean isQuiet) {
        if (hasForm(0, true, false)) {
            Outcome outcome = store.delete(key, cas);
            if (outcome != Outcome.STORED || !isQuiet) {
                outcome(outcome, isQuiet);
            }
        }
    }

    private void add(boolean isDecrement, boolean isQuiet) {
        if (!hasForm(20, true, false)) {
            return;
        }
        long delta = extras.getLong();
        long first = extras.getLong();
        int seconds = extras.getInt();
        Sum sum = store.add(key, delta, isDecrement, cas);
        if (sum.outcome() == Outcome.NOT_FOUND && seconds != NOT_MADE) {
            byte[] digits = Session.bytes(Long.toUnsignedString(first));
            sum = new Sum(store.store(Mode.ADD, key, 0, store.expiry(seconds), digits, 0), first);
        }
        if (sum.outcome() != Outcome.STORED) {
            outcome(sum.outcome(), isQuiet);
        } else if (!isQuiet) {
            byte[] number = ByteBuffer.allocate(8).putLong(sum.value()).array();
            answer(0, store.peek(key).cas, new byte[0], new byte[0], number);
        }
    }

    private void flush(boolean isQuiet) {
        if (extras.capacity() != 0 && extras.capacity() != 4 || key.length + value.length > 0) {
            status(INVALID, "Invalid arguments");
            return;
        }
        int delay = extras.capacity() == 4 ? extras.getInt() : 0;
        store.flush(delay == 0 ? store.now() : store.expiry(delay));
        if (!isQuiet) {
            answer(0, 0, new byte[0], new byte[0], new byte[0]);
        }
    }

    private void touch() {
        if (hasForm(4, true, false)) {
            outcome(store.touch(key, store.expiry(extras.getInt())), false);
        }
    }

    private void getAndTouch() {
        if (hasForm(4, true, false)) {
            get(opcode == 0x1e || opcode == 0x24, opcode >= 0x23, store.expiry(extras.getInt()));
        }
    }

    private void stats() {
        if (extras.capacity() + value.length > 0) {
            status(INVALID, "Invalid arguments");
            return;
        }
        String what = new String(key, StandardCharsets.ISO_8859_1);
        switch (what) {
            case "" -> {
                session.server.stats(this::figure);
                store.stats(this::figure);
            }
            case "items", "slabs" -> store.slabStats(what.equals("items"), this::figure);
            case "reset" -> store.counters.reset();
            default -> {
                status(NOT_FOUND, "Not found");
                return;
            }
        }
        answer(0, 0, new byte[0], new byte[0], new byte[0]);
    }

    private void figure(String name, Object figure) {
        answer(0, 0, new byte[0], Session.bytes(name), Session.bytes(String.valueOf(figure)));
    }
}

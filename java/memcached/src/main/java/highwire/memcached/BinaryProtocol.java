package highwire.memcached;

import highwire.memcached.Session.Progress;
import highwire.memcached.Store.Change;
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
    private static final byte[] NOTHING = {};
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
    /** Bytes behind the header. */
    private long body;
    /** The value, once it was read. */
    private byte[] value;

    BinaryProtocol(Session session) {
        this.session = session;
        this.store = session.store;
        this.out = session.output;
    }

    /** Takes the next request, if it is complete. */
    Progress next() {
        ByteBuffer input = session.input;
        int at = input.position();
        if (input.get(at) != REQUEST) {
            return Progress.CLOSE;
        }
        if (input.remaining() < HEADER) {
            return Progress.MORE;
        }
        opcode = input.get(at + 1) & 0xFF;
        int keyLength = input.getShort(at + 2) & 0xFFFF;
        int extrasLength = input.get(at + 4) & 0xFF;
        body = Integer.toUnsignedLong(input.getInt(at + 8));
        opaque = input.getInt(at + 12);
        cas = input.getLong(at + 16);
        if (keyLength + extrasLength > body) {
            status(UNKNOWN, "Unknown command");
            return Progress.CLOSE;
        }
        if (keyLength > Store.KEY_MAX) {
            return refuse();
        }
        if (input.remaining() < HEADER + extrasLength + keyLength) {
            return Progress.MORE;
        }
        input.position(at + HEADER);
        byte[] more = new byte[extrasLength];
        input.get(more);
        extras = ByteBuffer.wrap(more);
        key = new byte[keyLength];
        input.get(key);
        value = null;
        Progress progress;
        synchronized (store) {
            progress = command();
        }
        if (progress == Progress.MORE) {
            input.position(at);
        }
        return progress;
    }

    private long valueLength() {
        return body - extras.capacity() - key.length;
    }

    private Progress command() {
        switch (opcode) {
            case 0x00, 0x09, 0x0c, 0x0d -> {
                return hasForm(0, true) ? get(opcode == 0x09 || opcode == 0x0d, opcode >= 0x0c, null) : refuse();
            }
            case 0x01, 0x11 -> {
                return store(Mode.SET, opcode == 0x11);
            }
            case 0x02, 0x12 -> {
                return store(Mode.ADD, opcode == 0x12);
            }
            case 0x03, 0x13 -> {
                return store(Mode.REPLACE, opcode == 0x13);
            }
            case 0x04, 0x14 -> {
                return delete(opcode == 0x14);
            }
            case 0x05, 0x15 -> {
                return add(false, opcode == 0x15);
            }
            case 0x06, 0x16 -> {
                return add(true, opcode == 0x16);
            }
            case 0x07, 0x17 -> {
                if (!hasForm(0, false)) {
                    return refuse();
                }
                if (opcode == 0x07) {
                    done(0);
                }
                return Progress.CLOSE;
            }
            case 0x08, 0x18 -> {
                return flush(opcode == 0x18);
            }
            case 0x0a -> {
                if (!hasForm(0, false)) {
                    return refuse();
                }
                done(0);
            }
            case 0x0b -> {
                if (!hasForm(0, false)) {
                    return refuse();
                }
                answer(0, 0, NOTHING, NOTHING, Session.bytes(TextProtocol.VERSION));
            }
            case 0x0e, 0x19 -> {
                return join(Mode.APPEND, opcode == 0x19);
            }
            case 0x0f, 0x1a -> {
                return join(Mode.PREPEND, opcode == 0x1a);
            }
            case 0x10 -> {
                return stats();
            }
            case 0x1c, 0x1d, 0x1e, 0x23, 0x24 -> {
                // As in memcached, a value behind the key is not a part of this request.
                if (extras.capacity() != 4 || key.length == 0) {
                    return refuse();
                }
                Long expiry = store.expiry(Integer.toUnsignedLong(extras.getInt()));
                return opcode == 0x1c ? touch(expiry) : get(opcode == 0x1e || opcode == 0x24, opcode >= 0x23, expiry);
            }
            default -> {
                boolean isSasl = opcode >= 0x20 && opcode <= 0x22;
                boolean lists = opcode == 0x20;
                if (isSasl && (lists ? !hasForm(0, false) : extras.capacity() > 0 || key.length == 0)) {
                    return refuse();
                }
                session.skip(valueLength());
                status(UNKNOWN, "Unknown command");
            }
        }
        return Progress.DONE;
    }

    /** Whether the request has these extras, a key or none, and no value. */
    private boolean hasForm(int extrasLength, boolean withKey) {
        return extras.capacity() == extrasLength && key.length > 0 == withKey && valueLength() == 0;
    }

    /** Answers a request that does not have the parts that its command has; the conversation ends. */
    private Progress refuse() {
        status(INVALID, "Invalid arguments");
        return Progress.CLOSE;
    }

    /** Reads the value of a request that stores one. There is none afterwards if it has not come, or is too large, which is answered here. */
    private Progress readValue(boolean replaces) {
        long length = valueLength();
        if (Record.bytes(key.length, length) > store.options.itemBytes()) {
            if (replaces) {
                store.discard(key);
            }
            session.skip(length);
            status(TOO_LARGE, "Too large.");
            return Progress.DONE;
        }
        if (session.input.remaining() < length) {
            return Progress.MORE;
        }
        value = new byte[(int) length];
        session.input.get(value);
        return Progress.DONE;
    }

    private void answer(int status, long unique, byte[] withExtras, byte[] withKey, byte[] withValue) {
        int body = withExtras.length + withKey.length + withValue.length;
        out.room(HEADER + body).put(RESPONSE).put((byte) opcode).putShort((short) withKey.length)
                .put((byte) withExtras.length).put((byte) 0).putShort((short) status).putInt(body).putInt(opaque).putLong(unique)
                .put(withExtras).put(withKey).put(withValue);
    }

    private void status(int status, String text) {
        answer(status, 0, NOTHING, NOTHING, Session.bytes(text));
    }

    private void done(long unique) {
        answer(0, unique, NOTHING, NOTHING, NOTHING);
    }

    private void refused(Outcome outcome) {
        switch (outcome) {
            case NOT_STORED -> status(NOT_STORED, "Not stored.");
            case EXISTS -> status(EXISTS, "Data exists for key.");
            case NOT_FOUND -> status(NOT_FOUND, "Not found");
            case TOO_LARGE -> status(TOO_LARGE, "Too large.");
            case NO_MEMORY -> status(NO_MEMORY, "Out of memory");
            case NOT_A_NUMBER -> status(NOT_A_NUMBER, "Non-numeric server-side value for incr or decr");
            case STORED -> throw new IllegalArgumentException("no error");
        }
    }

    private Progress get(boolean isQuiet, boolean withKey, Long expiry) {
        Item item = expiry == null ? store.get(key) : store.touch(key, expiry).item();
        if (item != null) {
            answer(0, item.cas, flags(item), withKey ? key : NOTHING, store.value(item));
        } else if (!isQuiet) {
            if (withKey) {
                answer(NOT_FOUND, 0, NOTHING, key, NOTHING);
            } else {
                status(NOT_FOUND, "Not found");
            }
        }
        return Progress.DONE;
    }

    private static byte[] flags(Item item) {
        return ByteBuffer.allocate(4).putInt(item.flags).array();
    }

    private Progress store(Mode mode, boolean isQuiet) {
        if (extras.capacity() != 8 || key.length == 0) {
            return refuse();
        }
        Progress progress = readValue(mode == Mode.SET);
        if (value == null) {
            return progress;
        }
        int flags = extras.getInt();
        long expiry = store.expiry(Integer.toUnsignedLong(extras.getInt()));
        Outcome outcome = changed(store.store(cas != 0 ? Mode.CAS : mode, key, flags, expiry, value, cas), isQuiet);
        // Here the status tells why: add finds an item, replace finds none.
        if (outcome != Outcome.STORED) {
            refused(outcome != Outcome.NOT_STORED ? outcome : mode == Mode.ADD ? Outcome.EXISTS : Outcome.NOT_FOUND);
        }
        return Progress.DONE;
    }

    /** Answers a change that was made, unless the client wants no answer. */
    private Outcome changed(Change change, boolean isQuiet) {
        if (change.outcome() == Outcome.STORED && !isQuiet) {
            done(change.item().cas);
        }
        return change.outcome();
    }

    private Progress join(Mode mode, boolean isQuiet) {
        if (extras.capacity() != 0 || key.length == 0) {
            return refuse();
        }
        Progress progress = readValue(false);
        if (value == null) {
            return progress;
        }
        Outcome outcome = changed(store.store(mode, key, 0, 0, value, cas), isQuiet);
        if (outcome != Outcome.STORED) {
            refused(outcome);
        }
        return Progress.DONE;
    }

    private Progress delete(boolean isQuiet) {
        if (!hasForm(0, true)) {
            return refuse();
        }
        Outcome outcome = store.delete(key, cas == 0 ? null : (Long) cas);
        if (outcome != Outcome.STORED) {
            refused(outcome);
        } else if (!isQuiet) {
            done(0);
        }
        return Progress.DONE;
    }

    private Progress add(boolean isDecrement, boolean isQuiet) {
        if (!hasForm(20, true)) {
            return refuse();
        }
        long delta = extras.getLong();
        long first = extras.getLong();
        int seconds = extras.getInt();
        Sum sum = store.add(key, delta, isDecrement, cas);
        if (sum.outcome() == Outcome.NOT_FOUND && seconds != NOT_MADE) {
            byte[] digits = Session.bytes(Long.toUnsignedString(first));
            Change change = store.store(Mode.ADD, key, 0, store.expiry(Integer.toUnsignedLong(seconds)), digits, 0);
            sum = new Sum(change.outcome(), first, change.item());
        }
        if (sum.outcome() != Outcome.STORED) {
            refused(sum.outcome());
        } else if (!isQuiet) {
            // The item that was written, whether or not it has expired since.
            answer(0, sum.item().cas, NOTHING, NOTHING, ByteBuffer.allocate(8).putLong(sum.value()).array());
        }
        return Progress.DONE;
    }

    private Progress flush(boolean isQuiet) {
        if (extras.capacity() != 0 && extras.capacity() != 4 || key.length + valueLength() > 0) {
            return refuse();
        }
        long delay = extras.capacity() == 4 ? Integer.toUnsignedLong(extras.getInt()) : 0;
        store.flush(delay == 0 ? store.now() : store.expiry(delay));
        if (!isQuiet) {
            done(0);
        }
        return Progress.DONE;
    }

    private Progress touch(long expiry) {
        Change change = store.touch(key, expiry);
        if (change.outcome() == Outcome.STORED) {
            answer(0, change.item().cas, flags(change.item()), NOTHING, NOTHING);
        } else {
            refused(change.outcome());
        }
        return Progress.DONE;
    }

    private Progress stats() {
        if (extras.capacity() > 0) {
            return refuse();
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
                return Progress.DONE;
            }
        }
        done(0);
        return Progress.DONE;
    }

    private void figure(String name, Object figure) {
        answer(0, 0, NOTHING, Session.bytes(name), Session.bytes(String.valueOf(figure)));
    }
}

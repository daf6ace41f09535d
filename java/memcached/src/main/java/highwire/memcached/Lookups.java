package highwire.memcached;

import highwire.memcached.Record.Verdict;
import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.IdleStrategy;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import highwire.verbs.Timeouts;
import highwire.verbs.VerbsException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * GETs as READs: of the record in its last known place, or else of the key's bucket and the record to which
 * that points. A record itself tells whether it is the right one and still current; if it does not, the
 * client looks once more, from the bucket on.
 */
final class Lookups implements AutoCloseable {
    /** Keys that are looked up at one time. */
    static final int WIDTH = 16;
    /** How often a record is read while others write it, before the client asks the server. */
    private static final int ATTEMPTS = 64;
    /** The number of keys whose record's place is remembered. */
    private static final int PLACES = 1 << 16;

    /** How a look-up ended. */
    enum End { FOUND, ABSENT, UNKNOWN }

    /** The parts of a record that are believed without a check; tests plant defects here. */
    boolean verifies = true;

    /** The values that the server told. */
    record Layout(long address, int rkey, int bucketBits, long bytes, int itemBytes) {}

    private final IdleStrategy idle;
    private final ProtectionDomain pd;
    private final RdmaArena arena;
    private final MemoryRegion landing;
    private final CompletionQueue cq;
    private final QueuePair qp;
    private final Completion completion = new Completion();
    private final Lookup[] lookups = new Lookup[WIDTH];
    private final long slotBytes;
    /**
     * The place of a key's record when it was last found. The record itself tells whether it still is there.
     */
    private final Map<ByteBuffer, Long> places = new HashMap<>();
    private Layout layout;
    private long timeoutNanos;
    private int posted;
    private boolean isBroken;
    long reads;
    long retries;

    /** The look-up of one key. */
    private final class Lookup {
        final long at;
        final long recordAt;
        final PostSend bucketRead;
        final PostSend recordRead;
        byte[] key;
        long hash;
        int next;
        int attempts;
        boolean readsRecord;
        boolean hasMetAnother;
        /** Whether the record was looked for in its last known place. */
        boolean isGuess;
        long entrySought;
        long recordBytes;
        End end;

        Lookup(int number) {
            at = number * slotBytes;
            recordAt = at + Index.BUCKET_BYTES;
            bucketRead = qp.postSend(new SendRequest(Opcode.READ).wrId(number).remote(layout.address(), layout.rkey())
                    .sge(landing, at, Index.BUCKET_BYTES));
            recordRead = qp.postSend(new SendRequest(Opcode.READ).wrId(number).remote(layout.address(), layout.rkey())
                    .sge(landing, recordAt, Index.UNIT));
        }

        void begin(byte[] sought) {
            key = sought;
            hash = Record.hash(sought);
            attempts = 0;
            end = null;
            bucketRead.request(0).remoteAddress(layout.address() + Index.bucket(hash, layout.bucketBits()));
            Long place = places.get(ByteBuffer.wrap(sought));
            isGuess = place != null;
            if (isGuess) {
                readRecord(place);
            } else {
                readBucket();
            }
        }

        private void readRecord(long entry) {
            readsRecord = true;
            entrySought = entry;
            recordBytes = Index.length(entry);
            recordRead.request(0).remoteAddress(layout.address() + Index.place(entry)).sge(0, recordAt, (int) recordBytes);
            recordRead.exec();
            posted++;
            reads++;
        }

        private void readBucket() {
            if (attempts++ == ATTEMPTS) {
                end = End.UNKNOWN;
                return;
            }
            next = 0;
            readsRecord = false;
            hasMetAnother = false;
            bucketRead.exec();
            posted++;
            reads++;
        }

        /** The last READ has completed. */
        void proceed() {
            if (readsRecord) {
                Verdict verdict = verifies
                        ? Record.judge(landing.segment(), recordAt, recordBytes, Index.place(entrySought), key)
                        : Record.isOf(landing.segment(), recordAt, key) ? Verdict.GOOD : Verdict.OTHER_KEY;
                if (verdict == Verdict.GOOD) {
                    remember();
                    end = End.FOUND;
                    return;
                }
                if (isGuess) {
                    isGuess = false;
                    places.remove(ByteBuffer.wrap(key));
                    readBucket();
                    return;
                }
                if (verdict != Verdict.OTHER_KEY || verifies && !isNeighbour()) {
                    // The record was written meanwhile: the bucket points elsewhere by now.
                    retryFromBucket();
                    return;
                }
                hasMetAnother = true;
            }
            readNextRecord();
        }

        /**
         * Whether the record that was found may be one to which this bucket's entry pointed; a reused chunk
         * holds any record.
         */
        private boolean isNeighbour() {
            long other = Record.hash(Record.key(landing.segment(), recordAt));
            return Index.bucket(other, layout.bucketBits()) == Index.bucket(hash, layout.bucketBits()) && Index.isSameTag(other, hash);
        }

        private void remember() {
            if (!isGuess) {
                if (places.size() == PLACES) {
                    places.clear();
                }
                places.put(ByteBuffer.wrap(key.clone()), entrySought);
            }
        }

        private void retryFromBucket() {
            retries++;
            readBucket();
        }

        private void readNextRecord() {
            MemorySegment memory = landing.segment();
            while (next < Index.ENTRIES) {
                long entry = memory.get(ValueLayout.JAVA_LONG, at + 8L * next++);
                if (Index.hasTag(entry, hash)) {
                    if (Index.length(entry) > layout.itemBytes() || Index.place(entry) + Index.length(entry) > layout.bytes()) {
                        retryFromBucket();
                    } else {
                        readRecord(entry);
                    }
                    return;
                }
            }
            // A record with the same bucket and tag may have taken the chunk after the bucket was read: then
            // the right one is elsewhere.
            boolean isCertain = !hasMetAnother && memory.get(ValueLayout.JAVA_LONG, at + Index.MISSING) == 0;
            end = isCertain ? End.ABSENT : End.UNKNOWN;
        }
    }

    Lookups(Context context, int itemBytes, IdleStrategy idle) throws VerbsException {
        this.idle = idle;
        slotBytes = Index.BUCKET_BYTES + itemBytes;
        pd = context.protectionDomain();
        arena = context.arena(WIDTH * slotBytes);
        landing = pd.register(arena.segment(), Access.LOCAL_WRITE);
        cq = context.completionQueue(2 * WIDTH);
        qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq).withDepth(2 * WIDTH, 2));
    }

    Endpoint endpoint() {
        return qp.endpoint();
    }

    void connect(Endpoint server, Layout found, Duration timeout) throws VerbsException {
        layout = found;
        timeoutNanos = Timeouts.nanos(timeout);
        qp.connect(server, ConnectOptions.DEFAULT);
        for (int i = 0; i < WIDTH; i++) {
            lookups[i] = new Lookup(i);
        }
    }

    /** Looks up to {@link #WIDTH} keys up, from {@code first} on. */
    void find(byte[][] keys, int first, int count) throws MemcachedException {
        if (isBroken) {
            throw new MemcachedException("the server has gone");
        }
        for (int i = 0; i < count; i++) {
            lookups[i].begin(keys[first + i]);
        }
        // A READ that this thread carried out has completed already, and many a look-up ends within one turn.
        while (posted > 0) {
            await();
            lookups[(int) completion.wrId()].proceed();
        }
    }

    private void await() throws MemcachedException {
        isBroken = true;
        if (!polls()) {
            throw new MemcachedException("no READ has completed for " + timeoutNanos / 1_000_000 + " ms");
        }
        posted--;
        if (!completion.isSuccess()) {
            throw new MemcachedException("the server has gone: " + completion);
        }
        isBroken = false;
    }

    private boolean polls() {
        if (pollsSoon()) {
            return true;
        }
        long deadline = System.nanoTime() + timeoutNanos;
        while (System.nanoTime() - deadline < 0) {
            Thread.yield();
            if (pollsSoon()) {
                return true;
            }
        }
        return false;
    }

    /** Small, so that it is compiled for itself and soon. */
    private boolean pollsSoon() {
        do {
            if (cq.poll(completion)) {
                return true;
            }
        } while (idle.goOn());
        return false;
    }

    End end(int number) {
        return lookups[number].end;
    }

    /** The value that was found; null if it has expired. */
    Value value(int number, long now) {
        MemorySegment memory = landing.segment();
        long at = lookups[number].recordAt;
        long expiry = Record.expiry(memory, at);
        if (expiry != 0 && expiry <= now) {
            return null;
        }
        return new Value(Record.value(memory, at), Record.flags(memory, at), Record.cas(memory, at));
    }

    @Override
    public void close() throws VerbsException {
        qp.close();
        cq.close();
        landing.close();
        arena.close();
        pd.close();
    }
}

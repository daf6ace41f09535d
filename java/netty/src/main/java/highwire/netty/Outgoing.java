package highwire.netty;

import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.SendRequest;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;

/**
 * The outgoing half of a {@link Link}.
 *
 * <p>A peer of the same engine is near: the posting thread carries out what it posts, looks whether the peer's event loop sleeps, and rings. Any other peer is told of each change
 * by a WRITE with immediate.
 */
final class Outgoing {
    /** Requests that the queue pair holds. */
    static final int DEPTH = 64;
    /** Kept for what must always be possible: the end of the stream. */
    private static final int RESERVE = 4;

    /** Numbers of requests: other than bytes of data, which have the position of their end. */
    private static final long ALARM_AFTER_DATA = -1;
    private static final long ALARM_AFTER_CREDIT = -2;
    private static final long OTHER = -3;

    private final Link link;
    private final Memory memory;
    private final boolean isNear;
    private final int block;
    private final int blocks;
    private final long base;
    private final PostSend data;
    private final PostSend tail;
    private final PostSend credit;
    private final PostSend readAlarm;
    /** Bytes written, and those whose WRITE has completed. */
    private long sent;
    private long done;
    private int pending;
    /** The block in which the stream is, and how many it has entered. */
    private int current;
    private long entered;
    private boolean isFinished;
    private long rung;

    Outgoing(Link link, boolean isNear, int block, int blocks, long base, int rkey) {
        if (block < 64 || block % 64 != 0 || block > 1 << 20 || blocks < 2 || blocks > Memory.BLOCKS_MAX) {
            throw new IllegalArgumentException(blocks + " blocks of " + block + " bytes");
        }
        this.link = link;
        this.memory = link.memory();
        this.isNear = isNear;
        this.block = block;
        this.blocks = blocks;
        this.base = base;
        Opcode told = isNear ? Opcode.WRITE : Opcode.WRITE_WITH_IMM;
        data = link.qp().postSend(new SendRequest(Opcode.WRITE).remote(base, rkey).sge(memory.region, 0, 0));
        tail = link.qp().postSend(new SendRequest(told).wrId(OTHER).remote(base + Memory.TAIL, rkey).inline(new byte[8]));
        credit = link.qp().postSend(new SendRequest(told).wrId(OTHER).remote(base + Memory.CREDITS, rkey).inline(new byte[8]));
        readAlarm = link.qp().postSend(new SendRequest(Opcode.READ).remote(base + Memory.ALARM, rkey).sge(memory.region, Memory.PEER_ALARM, 8));
    }

    boolean isNear() {
        return isNear;
    }

    /** Bytes written so far. */
    long sent() {
        return sent;
    }

    /** Whether a request has not completed. */
    boolean isPending() {
        return pending > 0;
    }

    /** Whether something can be posted. What a near peer gets is carried out at once, unless the engine has something in its hands. */
    boolean hasSlot() {
        return isNear ? pending == 0 : pending < DEPTH - RESERVE;
    }

    void completed(long number) {
        pending--;
        if (number >= 0) {
            done = number;
        } else if (number == ALARM_AFTER_DATA || number == ALARM_AFTER_CREDIT) {
            ringIfAsleep(number == ALARM_AFTER_DATA);
        }
    }

    private void ringIfAsleep(boolean isAfterData) {
        long alarm = memory.peerAlarm();
        if (alarm != 0 && alarm != rung && (isAfterData || (alarm & Memory.WANTS_ROOM) != 0)) {
            rung = alarm;
            link.device().context().ring(alarm >>> 1 & 0xFFFF_FFFFL);
        }
    }

    /** How many bytes can be written in one piece now. */
    int room() {
        if (isFinished || link.failure() != null || !hasSlot()) {
            return 0;
        }
        int offset = (int) (sent % block);
        if (offset == 0 && entered * block == sent && !enter()) {
            return 0;
        }
        long free = memory.bytes() - (sent - done);
        return (int) Math.min(Math.min(block - offset, free), memory.bytes() - stagingAt());
    }

    private boolean enter() {
        if (entered < blocks) {
            current = (int) entered;
        } else {
            long word = memory.credit((int) (entered % blocks));
            if (word >>> 16 != entered + 1) {
                return false;
            }
            current = (int) word & 0xFFFF;
            if (current >= blocks) {
                link.fail("the peer gives back block " + current + " of " + blocks);
                return false;
            }
        }
        entered++;
        return true;
    }

    private int stagingAt() {
        return isNear ? 0 : (int) (sent % memory.bytes());
    }

    /**
     * Writes as much as there is room for, and moves the buffers' positions by that. {@link #publish} must follow.
     *
     * @param buffers the bytes
     * @param count of buffers
     * @return bytes written
     */
    long write(ByteBuffer[] buffers, int count) {
        long before = sent;
        int next = 0;
        while (next < count) {
            int room = room();
            if (room == 0) {
                break;
            }
            ByteBuffer piece = memory.staging(stagingAt(), room);
            while (next < count && piece.hasRemaining()) {
                move(buffers[next], piece);
                if (!buffers[next].hasRemaining()) {
                    next++;
                }
            }
            post(piece.position());
        }
        return sent - before;
    }

    private static void move(ByteBuffer from, ByteBuffer to) {
        int length = Math.min(from.remaining(), to.remaining());
        to.put(to.position(), from, from.position(), length);
        from.position(from.position() + length);
        to.position(to.position() + length);
    }

    private void post(int length) {
        if (length == 0) {
            return;
        }
        int from = stagingAt();
        long to = base + Memory.DATA + (long) current * block + sent % block;
        sent += length;
        data.request(0).wrId(sent).remoteAddress(to).sge(0, memory.stagingOffset(from), length);
        exec(data);
    }

    /** Tells the peer of what was written. */
    void publish() {
        publish(isFinished ? Memory.FINISHED : 0);
    }

    private void publish(long flags) {
        tail.request(0).inlineData().set(ValueLayout.JAVA_LONG_UNALIGNED, 0, sent << 2 | flags);
        exec(tail);
        wake(ALARM_AFTER_DATA);
    }

    /** Nothing more is written. */
    void finish(long flags) {
        isFinished = true;
        publish(flags);
    }

    /** The peer may write a block again. */
    void credit(int slot, long word) {
        credit.request(0).remoteAddress(base + Memory.CREDITS + 8L * slot).inlineData().set(ValueLayout.JAVA_LONG_UNALIGNED, 0, word);
        exec(credit);
        wake(ALARM_AFTER_CREDIT);
    }

    private void wake(long number) {
        if (isNear) {
            readAlarm.request(0).wrId(number);
            exec(readAlarm);
        }
    }

    private void exec(PostSend call) {
        pending++;
        call.exec();
        link.reap();
    }
}

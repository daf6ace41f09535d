package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;

/** What a claim holds of a peer, in rings that this test has made itself. */
class ClaimTest {
    private static final int SLOTS = 4;
    private static final int QPN = 77;

    private final Arena arena = Arena.ofAuto();
    private final MemorySegment sendRing = ring(Layout.RING_KIND_SEND);
    private final MemorySegment receives = ring(Layout.RING_KIND_RECEIVE);
    private final MemorySegment completions = ring(Layout.RING_KIND_COMPLETION);
    private final Claim claim = new Claim(sendRing);
    private final PostSend.Request request = request(new SendRequest(Opcode.SEND_WITH_IMM).inline(new byte[24]).imm(5));

    private MemorySegment ring(int kind) {
        MemorySegment ring = arena.allocate(Layout.RING_HEADER_BYTES + SLOTS * 64L, 64);
        Mapped.putInt(ring, Layout.RING_MAGIC_OFFSET, Layout.RING_MAGIC);
        Mapped.SHORT.set(ring, Layout.RING_VERSION_OFFSET, (short) Layout.RING_VERSION);
        Mapped.SHORT.set(ring, Layout.RING_KIND_OFFSET, (short) kind);
        Mapped.putInt(ring, Layout.RING_SLOT_BYTES_OFFSET, 64);
        Mapped.putInt(ring, Layout.RING_SLOT_COUNT_OFFSET, SLOTS);
        Mapped.putInt(ring, Layout.RING_SLOTS_OFFSET_OFFSET, (int) Layout.RING_HEADER_BYTES);
        return ring;
    }

    private PostSend.Request request(SendRequest described) {
        return new PostSend.Request(described, arena.allocate(described.imageBytes(), 8), 0);
    }

    /** Receives from this number on wait, as many as the ring has slots. */
    private PeerReceives waiting(MemorySegment ring, long from, int count) throws IOException {
        Mapped.putLongRelease(ring, Layout.RING_HEAD_OFFSET, from);
        Mapped.putLongRelease(ring, Layout.RING_TAIL_OFFSET, from + count);
        for (long number = from; number < from + count; number++) {
            Mapped.putLong(ring, slot(number), 1000 + number);
        }
        return new PeerReceives(ring, completions, QPN);
    }

    private static long slot(long number) {
        return Layout.RING_HEADER_BYTES + number % SLOTS * 64;
    }

    private static long head(MemorySegment ring) {
        return Mapped.getLongAcquire(ring, Layout.RING_HEAD_OFFSET);
    }

    private static Completion completion(MemorySegment ring, long number) {
        Completion completion = new Completion();
        completion.read(ring, slot(number));
        return completion;
    }

    private static long completed(MemorySegment ring, long number) {
        return Mapped.getLongAcquire(ring, slot(number) + Layout.RECEIVE_COMPLETED);
    }

    @Test
    void whatIsAnnouncedIsThePeerAndItsKeyUntilTheEnd() throws Exception {
        assertTrue(claim.announce(0x12_3456, 0xFEDC_BA98));
        assertEquals(0x8012_3456_FEDC_BA98L, Mapped.getLongAcquire(sendRing, Layout.RING_IN_USE_OFFSET));
        claim.end();
        assertEquals(0, Mapped.getLongAcquire(sendRing, Layout.RING_IN_USE_OFFSET));
        claim.close();
        assertFalse(claim.announce(1, 2), "no operation begins once the queue pair is being closed");
        claim.end();
        claim.reopen();
        assertTrue(claim.announce(1, 2));
    }

    @Test
    void aReceiveCompletesWhereItWasTaken() throws Exception {
        // Number 6 lies in the third of four slots.
        assertTrue(claim.lookAt(waiting(receives, 6, 2)));
        assertTrue(claim.take());
        // The queue pair gets another peer in between, whose receives begin elsewhere.
        MemorySegment others = ring(Layout.RING_KIND_RECEIVE);
        waiting(others, 0, 4);
        assertEquals(0, claim.complete(request, 0), "nobody waits");
        Completion done = completion(receives, 6);
        assertEquals(1006, done.wrId());
        assertEquals(24, done.byteLen());
        assertEquals(QPN, done.qpn());
        assertTrue(done.isReceive() && done.hasImm() && done.isSuccess());
        assertEquals(5, done.imm());
        assertEquals(7, completed(receives, 6));
        assertEquals(0, completed(receives, 7));
        assertEquals(7, head(receives));
        assertEquals(0, head(others));
        assertEquals(1, Mapped.getLongAcquire(completions, Layout.RING_COMPLETED_OFFSET));
        assertThrows(IllegalStateException.class, () -> claim.complete(request, 0), "once");
    }

    @Test
    void aReceiveIsGivenBackUnlessALaterOneWasTaken() throws Exception {
        PeerReceives of = waiting(receives, 0, 3);
        assertTrue(claim.lookAt(of) && claim.take());
        assertTrue(claim.giveBack());
        assertEquals(0, head(receives));
        assertThrows(IllegalStateException.class, () -> claim.complete(request, 0), "it is the peer's again");
        assertTrue(claim.lookAt(of) && claim.take());
        Mapped.putLongRelease(receives, Layout.RING_HEAD_OFFSET, 2);
        assertFalse(claim.giveBack());
        claim.complete(request, CompletionStatus.FLUSHED.ordinal());
        assertEquals(CompletionStatus.FLUSHED, completion(receives, 0).status());
        assertEquals(2, head(receives));
    }

    @Test
    void aReceiveIsTakenOnce() throws Exception {
        PeerReceives of = waiting(receives, 0, 1);
        Claim other = new Claim(ring(Layout.RING_KIND_SEND));
        assertTrue(claim.lookAt(of) && other.lookAt(of));
        assertTrue(other.take());
        assertFalse(claim.take());
        assertThrows(IllegalStateException.class, () -> claim.complete(request, 0));
    }

    @Test
    void thereIsNothingToTakeIfNoneWaitsOrTheEngineHoldsThem() throws Exception {
        assertFalse(claim.lookAt(waiting(receives, 3, 0)));
        assertFalse(claim.lookAt(waiting(receives, 3, SLOTS + 1)), "cursors that contradict the ring");
        PeerReceives of = waiting(receives, 3, 1);
        Mapped.putLongRelease(receives, Layout.RING_HELD_OFFSET, 1);
        assertFalse(claim.lookAt(of));
        Mapped.putLongRelease(receives, Layout.RING_HELD_OFFSET, 0);
        assertTrue(claim.lookAt(of));
    }

    @Test
    void oneOfThoseThatCompleteWakesTheOwner() throws Exception {
        Mapped.putLongRelease(completions, Layout.RING_BELL_OFFSET, 4242);
        Mapped.putLongRelease(completions, Layout.RING_ARM_OFFSET, Layout.ARM_NEXT);
        assertTrue(claim.lookAt(waiting(receives, 0, 1)) && claim.take());
        long armed = claim.complete(request, 0);
        assertEquals(Layout.ARM_NEXT, armed);
        assertEquals(4242, claim.disarm(armed));
        assertEquals(0, claim.disarm(armed), "another has the duty");
    }
}

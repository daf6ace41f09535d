package highwire.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionStatus;
import highwire.verbs.Opcode;
import highwire.verbs.QueueFullException;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Every operation of a request, and every refusal, over the drop-in library. */
class OperationsTest {
    @Test
    void everyOperationDoesWhatItSays() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            a.put(0, "written");
            a.request(Opcode.WRITE, 0, 7).remote(b.memory.address() + 64, b.memory.rkey()).wrId(1).exec();
            assertEquals(1, a.success().wrId());
            assertEquals("written", b.text(64, 7));

            a.request(Opcode.READ, 128, 7).remote(b.memory.address() + 64, b.memory.rkey()).exec();
            assertEquals(7, a.success().byteLen());
            assertEquals("written", a.text(128, 7));

            b.setWord(256, 40);
            a.request(Opcode.FETCH_ADD, 512, 8).remote(b.memory.address() + 256, b.memory.rkey()).add(2).exec();
            a.success();
            assertEquals(40, a.word(512));
            assertEquals(42, b.word(256));
            a.request(Opcode.COMPARE_SWAP, 512, 8).remote(b.memory.address() + 256, b.memory.rkey()).compareSwap(42, 7).exec();
            a.success();
            assertEquals(42, a.word(512));
            assertEquals(7, b.word(256));

            b.receive(9, 1024, 64);
            b.receive(10, 2048, 64);
            a.request(Opcode.SEND_WITH_IMM, 0, 7).imm(0x01020304).exec();
            a.success();
            Completion got = b.success();
            assertTrue(got.isReceive() && got.hasImm());
            assertEquals(9, got.wrId());
            assertEquals(7, got.byteLen());
            assertEquals(0x01020304, got.imm());
            assertEquals("written", b.text(1024, 7));
            a.request(Opcode.WRITE_WITH_IMM, 0, 7).imm(5).remote(b.memory.address() + 4096, b.memory.rkey()).exec();
            a.success();
            assertEquals(5, b.success().imm());
            assertEquals("written", b.text(4096, 7));
        }
    }

    @Test
    void piecesOfMemoryGoTogetherAndCallsChangeInPlace() throws VerbsException {
        End[] ends = End.pair(Service.UC);
        try (End a = ends[0]; End b = ends[1]) {
            a.put(0, "one,two,");
            PostSend send = a.qp.postSend(Opcode.SEND, 2).sge(0, a.memory, 0, 4).sge(1, a.memory, 4, 4);
            b.receive(1, 0, 64);
            assertEquals(1, send.exec().result());
            a.success();
            b.success();
            assertEquals("one,two,", b.text(0, 8));
            b.receive(2, 0, 64);
            send.sge(0, a.memory, 4, 4).sge(1, a.memory, 0, 4).wrId(77).exec();
            assertEquals(77, a.success().wrId());
            b.success();
            assertEquals("two,one,", b.text(0, 8));
            assertTrue(send.valid());
            assertFalse(send.free().valid());
            assertThrows(IllegalStateException.class, send::exec);
        }
    }

    @Test
    void aThreadSleepsUntilAnArmedQueueHasACompletion() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            assertFalse(b.channel.await(Duration.ofMillis(1)), "nothing was armed");
            b.receive(1, 0, 64);
            b.cq.requestNotify(false);
            a.request(Opcode.SEND, 0, 8).exec();
            assertTrue(b.channel.await(Duration.ofSeconds(60)));
            b.success();
            a.success();
        }
    }

    @Test
    void aWrongKeyIsTheRequestersErrorAndBreaksItsQueuePair() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            a.request(Opcode.WRITE, 0, 8).remote(b.memory.address(), b.memory.rkey() ^ 0x55).exec();
            assertEquals(CompletionStatus.REMOTE_ACCESS, a.next().status());
            a.request(Opcode.WRITE, 0, 8).remote(b.memory.address(), b.memory.rkey()).exec();
            assertEquals(CompletionStatus.FLUSHED, a.next().status());
        }
    }

    @Test
    void aFullQueueIsAnException() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend write = a.request(Opcode.WRITE, 0, 8).remote(b.memory.address(), b.memory.rkey());
            assertThrows(QueueFullException.class, () -> {
                for (int i = 0; i < 10_000; i++) {
                    write.exec();
                }
            });
            assertEquals(0, write.result());
            a.success();
            assertEquals(1, write.exec().result());
        }
    }

    @Test
    void whatIsStillNeededCannotBeClosedAndWhatIsClosedCannotBeUsed() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            assertThrows(StillNeededException.class, a.pd::close);
            assertThrows(StillNeededException.class, a.cq::close);
            assertThrows(StillNeededException.class, a.device::close);
            PostSend send = a.request(Opcode.SEND, 0, 8);
            PollCq poll = b.cq.pollCall(1);
            a.memory.close();
            a.memory.close();
            assertFalse(send.valid());
            assertThrows(IllegalStateException.class, send::exec);
            b.qp.close();
            b.cq.close();
            assertThrows(IllegalStateException.class, poll::exec);
            assertThrows(IllegalStateException.class, () -> b.qp.postRecv(1));
        }
    }

    @Test
    void whatCannotBeIsRefusedBeforeTheLibrarySeesIt() throws VerbsException {
        End[] ends = End.pair(Service.RC);
        try (End a = ends[0]; End b = ends[1]; Arena arena = Arena.ofShared(); MemoryRegion readOnly = a.pd.register(arena.allocate(64), Access.NONE)) {
            assertThrows(IllegalArgumentException.class, () -> a.pd.register(MemorySegment.ofArray(new byte[64]), Access.ALL));
            assertThrows(IllegalArgumentException.class, () -> a.request(Opcode.SEND, 0, 8).sge(0, b.memory, 0, 8));
            assertThrows(IllegalArgumentException.class, () -> a.request(Opcode.READ, 0, 8).sge(0, readOnly, 0, 8));
            assertThrows(IllegalArgumentException.class, () -> a.request(Opcode.WRITE, 0, 8).add(1));
            assertThrows(IndexOutOfBoundsException.class, () -> a.request(Opcode.SEND, End.BYTES - 4, 8));
            assertThrows(IndexOutOfBoundsException.class, () -> a.request(Opcode.SEND, -1, 8));
            assertThrows(NullPointerException.class, () -> a.qp.postSend(Opcode.SEND, 1).exec());
            assertThrows(IllegalArgumentException.class, () -> a.pd.queuePair(Service.UD, a.cq, 1, 1));
            NativeVerbsException refused = assertThrows(NativeVerbsException.class, () -> a.pd.queuePair(Service.RC, a.cq, 1 << 30, 1));
            assertTrue(refused.getMessage().startsWith("ibv_create_qp failed: E"), refused::getMessage);
            NoDriverException absent = assertThrows(NoDriverException.class, () -> Device.open("mlx5_0"));
            assertTrue(absent.getMessage().contains(End.DEVICE), absent::getMessage);
        }
    }
}

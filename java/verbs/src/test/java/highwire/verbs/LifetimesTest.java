package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The lifetimes of objects, and the errors of a program that gets them wrong. */
class LifetimesTest extends WithEngine {
    @Test
    void whatIsNeededDoesNotCloseAndWhatIsClosedIsNotUsed() throws Exception {
        long before = engine.files();
        End end = new End(engine, Service.RC);
        assertThrows(InUseException.class, end.pd::close);
        assertThrows(InUseException.class, end.cq::close);
        assertThrows(InUseException.class, end.channel::close);
        assertThrows(InUseException.class, end.arena::close);
        String said = assertThrows(InUseException.class, end.context::close).getMessage();
        assertTrue(said.contains("6 objects"), said);
        MemorySegment memory = end.memory.segment();
        end.close();
        assertThrows(IllegalStateException.class, () -> memory.get(ValueLayout.JAVA_BYTE, 0));
        assertThrows(IllegalStateException.class, () -> end.qp.postSend());
        assertThrows(IllegalStateException.class, () -> end.qp.modify(new QpAttr().state(QpState.ERROR)));
        assertThrows(IllegalStateException.class, () -> end.cq.poll(new Completion()));
        assertThrows(IllegalStateException.class, () -> end.pd.register(memory, 0));
        assertThrows(IllegalStateException.class, () -> end.arena.allocate(8));
        for (Executable use : List.<Executable>of(end.context::protectionDomain, () -> end.context.arena(8), () -> end.context.completionQueue(8),
                end.context::completionChannel, () -> end.context.ring(9), end.context::bell)) {
            said = assertThrows(IllegalStateException.class, use).getMessage();
            assertEquals("the context is closed", said);
        }
        assertFalse(end.context.valid());
        assertDoesNotThrow(end.qp::close, "closing twice is closing once");
        Engine.until("the end of its files", () -> assertDoesNotThrow(engine::files) == before);
    }

    @Test
    void accessThatThereIsNotIsRefused() throws Exception {
        try (End end = new End(engine, Service.RC)) {
            for (int bit = 0; bit < 32; bit++) {
                int access = 1 << bit | Access.LOCAL_WRITE;
                if ((access & ~Access.ALL) != 0) {
                    assertThrows(RefusedException.class, () -> end.pd.register(end.arena.segment(), access), "bit " + bit);
                    assertThrows(RefusedException.class, () -> end.qp.prepare(access), "bit " + bit);
                    assertEquals(QpState.RESET, end.qp.query().state());
                } else {
                    end.pd.register(end.arena.segment(), access).close();
                }
            }
        }
    }

    @Test
    void onlyMemoryOfAnArenaCanBeRegistered() throws Exception {
        try (End end = new End(engine, Service.RC); Arena elsewhere = Arena.ofConfined()) {
            assertThrows(ForeignMemoryException.class, () -> end.pd.register(elsewhere.allocate(64), 0));
            assertThrows(ForeignMemoryException.class, () -> end.pd.register(MemorySegment.ofArray(new byte[64]), 0));
            assertThrows(IndexOutOfBoundsException.class, () -> end.arena.allocate(1));
            assertThrows(IllegalArgumentException.class, () -> end.context.arena(0));
            assertThrows(VerbsException.class, () -> end.context.arena(1L << 60));
            SendRequest request = new SendRequest(Opcode.SEND);
            assertThrows(IndexOutOfBoundsException.class, () -> request.sge(end.memory, End.BYTES - 4, 8));
            assertThrows(IndexOutOfBoundsException.class, () -> request.sge(end.memory, -1, 8));
        }
    }

    @Test
    void aStateThatDoesNotFollowIsRefused() throws Exception {
        try (End end = new End(engine, Service.RC)) {
            QpAttr attr = new QpAttr().state(QpState.RTS);
            String said = assertThrows(WrongStateException.class, () -> end.qp.modify(attr)).getMessage();
            assertTrue(said.contains("RESET") && said.contains("RTS"), said);
            assertEquals(QpState.RESET, end.qp.query().state());
            said = assertThrows(WrongStateException.class, () -> end.qp.modify(new QpAttr().state(QpState.INIT)))
                    .getMessage();
            assertTrue(said.contains("access"), said);
            end.qp.prepare(Access.REMOTE_READ);
            QpAttr now = end.qp.query();
            assertEquals(QpState.INIT, now.state());
            assertEquals(Access.REMOTE_READ, now.access());
            end.receive(3, 0, 8);
            end.qp.modify(new QpAttr().state(QpState.ERROR));
            assertEquals(CompletionStatus.FLUSHED, end.next().status());
        }
    }

    @Test
    void aKeyWorksAsLongAsItsRegionAndNoLongerAndNoFurther() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            MemoryRegion readable = b.pd.register(b.arena.segment().asSlice(4096, 64), Access.REMOTE_READ);
            PostSend read = a.qp.postSend(new SendRequest(Opcode.READ).remote(readable.address(), readable.rkey())
                    .sge(a.memory, 0, 64));
            read.exec();
            a.success();
            assertEquals(0, a.qp.postedToEngine());
            readable.close();
            read.exec();
            assertEquals(CompletionStatus.REMOTE_ACCESS, a.next().status());
            assertEquals(QpState.ERROR, a.qp.query().state());
            // A queue pair in error does nothing by itself either.
            a.qp.postSend(a.to(b, Opcode.WRITE, 0).wrId(9).sge(a.memory, 0, 8)).exec();
            assertEquals(CompletionStatus.FLUSHED, a.next().status());
        }
        for (int wrong = 0; wrong < 4; wrong++) {
            ends = End.pair(engine, Service.RC);
            try (End a = ends[0]; End b = ends[1];
                    MemoryRegion readable = b.pd.register(b.arena.segment().asSlice(4096, 64), Access.REMOTE_READ);
                    ProtectionDomain otherPd = b.context.protectionDomain();
                    MemoryRegion other = otherPd.register(b.arena.segment().asSlice(0, 64), Access.ALL)) {
                SendRequest request = switch (wrong) {
                    case 0 -> new SendRequest(Opcode.READ).remote(readable.address() + 60, readable.rkey());
                    case 1 -> new SendRequest(Opcode.READ).remote(readable.address() - 4, readable.rkey());
                    case 2 -> new SendRequest(Opcode.WRITE).remote(readable.address(), readable.rkey());
                    default -> new SendRequest(Opcode.READ).remote(other.address(), other.rkey());
                };
                a.qp.postSend(request.sge(a.memory, 0, 8)).exec();
                assertEquals(CompletionStatus.REMOTE_ACCESS, a.next().status(), "case " + wrong);
            }
        }
    }

    @Test
    void aPeerThatHasGoneIsNotWrittenTo() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]) {
            End b = ends[1];
            SendRequest write = a.to(b, Opcode.WRITE, 0).sge(a.memory, 0, 8);
            a.qp.modify(new QpAttr().timeout(8).retryCount(1));
            b.close();
            a.qp.postSend(write).exec();
            assertEquals(CompletionStatus.RETRY_EXCEEDED, a.next().status());
        }
    }

    @Test
    void aFullQueueSaysSoAndTakesNothing() throws Exception {
        try (End end = new End(engine, Service.RC)) {
            PostRecv receive = end.qp.postRecv(new ReceiveRequest().sge(end.memory, 0, 8));
            // In RESET the engine takes no receive, so the ring fills; of those in error it has refused at
            // most one.
            end.qp.prepare(Access.NONE);
            int taken = 0;
            try {
                while (taken < 1000) {
                    receive.exec();
                    taken++;
                }
            } catch (QueueFullException e) {
                assertEquals(0, receive.result());
            }
            assertTrue(taken >= 16 && taken < 1000, taken + " receives");
            assertFalse(end.cq.hasCompletion());
        }
    }
}

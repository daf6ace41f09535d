package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Messages on RC, and the receives that wait for them. */
class MessagesTest extends WithEngine {
    @Test
    void messagesWithinAnEngineAreCarriedOutByThePoster() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            messages(a, b);
            assertEquals(0, a.qp.postedToEngine(), "the engine had no part in it");
        }
    }

    @Test
    void messagesGoThroughTheEngineToAnotherOne() throws Exception {
        try (Engine other = engine.startBeside(); End a = new End(engine, Service.RC); End b = new End(other, Service.RC)) {
            End.connect(a, b);
            messages(a, b);
            assertEquals(3 * 40, a.qp.postedToEngine());
        }
    }

    @Test
    void messagesAndThoseWhoSleepForThemNeedNoEngine() throws Exception {
        try (Engine other = engine.startBeside()) {
            End[] ends = End.pair(other, Service.RC);
            try (End a = ends[0]; End b = ends[1]) {
                PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 4));
                other.halt();
                AtomicReference<Object> heard = new AtomicReference<>();
                for (int i = 0; i < 5; i++) {
                    a.put(0, "msg" + i);
                    b.receive(i, 0, 4);
                    b.cq.requestNotify(false);
                    Thread sleeper = Thread.ofPlatform().start(() -> {
                        try {
                            heard.set(b.channel.await(Duration.ofSeconds(60)));
                        } catch (Exception e) {
                            heard.set(e);
                        }
                    });
                    send.exec();
                    a.success();
                    sleeper.join();
                    assertEquals(b.cq, heard.get());
                    assertEquals(i, b.success().wrId());
                    assertEquals("msg" + i, b.text(0, 4));
                }
                assertEquals(0, Mapped.getLongAcquire(b.context.board.memory(), Layout.BOARD_SUMMARY_OFFSET), "nobody was rung for");
                other.goOn();
            }
        }
    }

    /** Three laps of the ring, one kind after the other. */
    private static void messages(End a, End b) {
        a.put(0, "message");
        for (int i = 0; i < 40; i++) {
            b.receive(3 * i, 100, 64);
            b.receive(3 * i + 1, 200, 64);
            b.receive(3 * i + 2, 300, 0);
            a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 7)).exec();
            a.success();
            a.qp.postSend(new SendRequest(Opcode.SEND_WITH_IMM).imm(i).inline("inline".getBytes())).exec();
            a.success();
            a.qp.postSend(a.to(b, Opcode.WRITE_WITH_IMM, 400).imm(-i).sge(a.memory, 0, 3).sge(a.memory, 3, 4)).exec();
            a.success();
            assertReceived(b.success(), 3 * i, 7, 0x80, null);
            assertEquals("message", b.text(100, 7));
            assertReceived(b.success(), 3 * i + 1, 6, 0x80, i);
            assertEquals("inline", b.text(200, 6));
            assertReceived(b.success(), 3 * i + 2, 7, 0x81, -i);
            assertEquals("message", b.text(400, 7));
            b.put(100, "-------");
            b.put(400, "-------");
        }
    }

    private static void assertReceived(Completion found, long wrId, int bytes, int opcode, Integer imm) {
        assertEquals(wrId, found.wrId());
        assertEquals(bytes, found.byteLen());
        assertEquals(opcode, found.opcode());
        assertEquals(imm != null, found.hasImm());
        assertTrue(imm == null || imm == found.imm());
    }

    @Test
    void messagesCompleteInOrderWhoeverCarriesThemOut() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8));
            for (int i = 0; i < 64; i++) {
                if (i % 4 == 3) {
                    // A receive of two pieces is for the engine.
                    b.qp.postRecv(new ReceiveRequest().wrId(i).sge(b.memory, 0, 4).sge(b.memory, 8, 4)).exec();
                } else {
                    b.receive(i, 0, 8);
                }
                send.exec();
                if (i % 8 == 7) {
                    for (int seen = i - 7; seen <= i; seen++) {
                        a.success();
                        assertEquals(seen, b.success().wrId());
                    }
                }
            }
            long byEngine = a.qp.postedToEngine();
            assertTrue(byEngine >= 16 && byEngine < 64, "by the engine: " + byEngine);
        }
    }

    @Test
    void whatFindsNoReceiveWaitsForOneInTheEngine() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            a.put(0, "late");
            a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 4)).exec();
            b.receive(1, 0, 4);
            assertEquals(1, b.success().wrId());
            a.success();
            assertEquals("late", b.text(0, 4));
            assertEquals(1, a.qp.postedToEngine());
            b.receive(2, 0, 4);
            a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 4)).exec();
            assertEquals(2, b.success().wrId());
            assertEquals(1, a.qp.postedToEngine(), "the poster has it again");
        }
    }

    @Test
    void aMessageThatIsTooLongFailsAtBothEnds() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            b.receive(1, 0, 4);
            b.receive(2, 0, 4);
            a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 5)).exec();
            assertFalse(a.next().isSuccess());
            assertFalse(b.next().isSuccess());
            assertEquals(2, b.next().wrId());
        }
    }

    @Test
    void receivesComeBackWhenTheQueuePairFails() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            for (int i = 0; i < 3; i++) {
                b.receive(i, 0, 8);
            }
            a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8)).exec();
            assertEquals(0, b.success().wrId());
            b.qp.modify(new QpAttr().state(QpState.ERROR));
            // The receives that waited, and one that is posted afterwards.
            b.receive(3, 0, 8);
            for (int i = 1; i < 4; i++) {
                Completion flushed = b.next();
                assertEquals(CompletionStatus.FLUSHED, flushed.status());
                assertEquals(i, flushed.wrId());
            }
        }
    }

    @Test
    void aQueuePairThatBeginsAnewHasNoReceives() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8));
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 5; i++) {
                    b.receive(10 * round + i, 0, 8);
                }
                send.exec();
                send.exec();
                assertEquals(10 * round, b.success().wrId());
                a.success();
                a.success();
                // One receive has completed and was not polled, three wait.
                a.qp.modify(new QpAttr().state(QpState.RESET));
                b.qp.modify(new QpAttr().state(QpState.RESET));
                End.connect(a, b);
            }
            assertFalse(b.cq.poll(new Completion()));
        }
    }

    @Test
    void whatTheEngineCompletedBeforeAResetTakesNoPlaceAfterIt() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8));
            for (int i = 0; i < 2; i++) {
                // Receives of two pieces are for the engine.
                b.qp.postRecv(new ReceiveRequest().wrId(i).sge(b.memory, 0, 4).sge(b.memory, 8, 4)).exec();
                send.exec();
                a.success();
            }
            Engine.until("two completions", () -> b.cq.waitingReceives(b.qp.qpn()) == 2);
            a.qp.modify(new QpAttr().state(QpState.RESET));
            b.qp.modify(new QpAttr().state(QpState.RESET));
            End.connect(a, b);
            assertEquals(0, b.success().wrId());
            assertEquals(1, b.success().wrId());
            for (int i = 2; i < 2 + 16; i++) {
                b.receive(i, 0, 8);
            }
            assertThrows(QueueFullException.class, () -> b.receive(99, 0, 8));
            for (int i = 2; i < 2 + 16; i++) {
                send.exec();
                a.success();
                assertEquals(i, b.success().wrId());
            }
        }
    }

    @Test
    void aPlaceForAReceiveIsFreeOnceItsCompletionWasPolled() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8));
            for (int i = 0; i < 16; i++) {
                b.receive(i, 0, 8);
                send.exec();
                a.success();
            }
            assertThrows(QueueFullException.class, () -> b.receive(16, 0, 8));
            assertEquals(0, b.success().wrId());
            b.receive(16, 0, 8);
        }
    }
}

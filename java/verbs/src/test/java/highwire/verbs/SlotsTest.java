package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.foreign.ValueLayout;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.Test;

/** A slot of the ring is written again only if it does not hold the request already, over several laps of sixteen slots. */
class SlotsTest {
    private static final int SLOTS = 16;
    /** The offset of the word that peers change. */
    private static final long AT = 2048;

    /**
     * Changes a call at every seventeenth execution, so that each slot holds the request before that change.
     */
    private static void laps(PostSend call, IntConsumer change, IntConsumer check) {
        for (int number = 0; number < 3 * (SLOTS + 1); number++) {
            int value = number / (SLOTS + 1);
            if (number % (SLOTS + 1) == 0) {
                change.accept(value);
            }
            call.exec();
            check.accept(value);
        }
    }

    @Test
    void aCallThatIsChangedIsExecutedAsItIsThen() throws Exception {
        // The queue pairs have two engines, so that all requests go through the rings.
        try (Engine engine = Engine.start(); Engine other = engine.startBeside(); End a = new End(engine, Service.RC); End b = new End(other, Service.RC)) {
            End.connect(a, b);
            PostSend imm = a.qp.postSend(new SendRequest(Opcode.SEND_WITH_IMM).sge(a.memory, 0, 8));
            b.receive(1, 1024, 64);
            laps(imm, value -> imm.request(0).imm(100 + value), value -> {
                a.success();
                assertEquals(100 + value, b.success().imm());
                b.receive(1, 1024, 64);
            });
            PostSend piece = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8));
            laps(piece, value -> piece.request(0).sge(0, 0, 8 + value), value -> {
                a.success();
                assertEquals(8 + value, b.success().byteLen());
                b.receive(1, 1024, 64);
            });
            PostSend inline = a.qp.postSend(new SendRequest(Opcode.SEND).inline(new byte[8]));
            laps(inline, value -> inline.request(0).inlineData().set(ValueLayout.JAVA_LONG, 0, value), value -> {
                a.success();
                b.success();
                assertEquals(value, b.word(1024));
                b.receive(1, 1024, 64);
            });
            PostSend write = a.qp.postSend(a.to(b, Opcode.WRITE, AT).sge(a.memory, 0, 8));
            a.setWord(0, 7);
            laps(write, value -> write.request(0).wrId(40 + value), value -> assertEquals(40 + value, a.success().wrId()));
            laps(write, value -> write.request(0).remoteAddress(b.memory.address() + AT + 8 * value), value -> {
                a.success();
                assertEquals(7, b.word(AT + 8 * value));
                b.setWord(AT + 8 * value, 0);
            });
            PostSend add = a.qp.postSend(a.to(b, Opcode.FETCH_ADD, AT).sge(a.memory, 64, 8));
            laps(add, value -> add.request(0).add(1 + value), value -> {
                a.success();
                assertEquals(1 + value, b.word(AT));
                b.setWord(AT, 0);
            });
            PostSend swap = a.qp.postSend(a.to(b, Opcode.COMPARE_SWAP, AT).sge(a.memory, 64, 8));
            laps(swap, value -> {
                swap.request(0).compareSwap(value, value + 10);
                b.setWord(AT, value);
            }, value -> {
                a.success();
                assertEquals(value + 10, b.word(AT));
                b.setWord(AT, value);
            });
        }
    }

    @Test
    void aKeyThatIsChangedIsTheOneThatCounts() throws Exception {
        try (Engine engine = Engine.start(); Engine other = engine.startBeside(); End a = new End(engine, Service.RC); End b = new End(other, Service.RC)) {
            End.connect(a, b);
            MemoryRegion second = b.pd.register(b.memory.segment(), Access.ALL);
            MemoryRegion first = b.pd.register(b.memory.segment(), Access.ALL);
            PostSend write = a.qp.postSend(new SendRequest(Opcode.WRITE).remote(first.address(), first.rkey()).sge(a.memory, 0, 8));
            for (int number = 0; number < SLOTS; number++) {
                write.exec();
                a.success();
            }
            assertEquals(first.address(), second.address());
            write.request(0).rkey(second.rkey());
            first.close();
            for (int number = 0; number < SLOTS; number++) {
                write.exec();
                a.success();
            }
            second.close();
        }
    }
}

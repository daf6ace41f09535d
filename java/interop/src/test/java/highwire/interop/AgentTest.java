package highwire.interop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * The agent's lines, between two connections to one engine: `cargo xtask interop` tests them against the
 * kernel.
 */
class AgentTest {
    private static final String READY_TO_RECEIVE = "mtu=1024 rd_atomic=4 min_rnr=12";
    private static Engine engine;

    @BeforeAll
    static void start() throws Exception {
        engine = Engine.start();
    }

    @AfterAll
    static void stop() throws Exception {
        if (engine != null) {
            engine.close();
        }
    }

    /** One connection's device, with a protection domain, a completion queue and a queue pair, all of number 0. */
    private static final class End implements AutoCloseable {
        final Objects objects = new Objects();
        String address;
        String qpn;

        End() throws Exception {
            address = word(ask("open"), "gid").substring("0,".length());
            ask("pd");
            ask("cq depth=64");
            qpn = word(ask("qp type=rc pd=0 cq=0 inline=128"), "qpn");
        }

        String ask(String line) throws Exception {
            String answer = Agent.answer(new Request(line), objects);
            assertTrue(answer.startsWith("ok"), "`" + line + "`: " + answer);
            return answer;
        }

        String refused(String line) throws Exception {
            String answer = Agent.answer(new Request(line), objects);
            assertTrue(answer.startsWith("err "), "`" + line + "`: " + answer);
            return answer;
        }

        void connect(End peer) throws Exception {
            ask("init qp=0 access=lwra");
            ask("rtr qp=0 gid=" + peer.address + " sgid=0 qpn=" + peer.qpn + " psn=7 " + READY_TO_RECEIVE);
            ask("rts qp=0 psn=7 timeout=14 retry=7 rnr=7 rd_atomic=4");
        }

        /** The one completion that comes, as its eight numbers. */
        String[] completion() throws Exception {
            String answer = ask("poll cq=0 count=1 ms=60000");
            assertEquals("1", word(answer, "n"));
            return word(answer, "wc").split(",");
        }

        @Override
        public void close() throws IOException {
            objects.close();
        }
    }

    private static String word(String answer, String key) {
        Matcher matcher = Pattern.compile(" " + key + "=(\\S+)").matcher(answer);
        assertTrue(matcher.find(), answer);
        return matcher.group(1);
    }

    @Test
    void aMessageArrivesAndAWrongByteOfItIsFound() throws Exception {
        try (End a = new End(); End b = new End()) {
            a.connect(b);
            b.connect(a);
            a.ask("mr pd=0 bytes=5000 access=l");
            a.ask("fill mr=0 seed=9");
            b.ask("mr pd=0 bytes=8192 access=l");
            b.ask("recv qp=0 wr=18446744073709551615 sge=0:0:8192");
            a.ask("send qp=0 op=send_imm imm=0xa1b2c3d4 wr=1 sge=0:0:5000");
            String[] sent = a.completion();
            assertEquals("1,0", sent[0] + "," + sent[1]);
            String[] received = b.completion();
            assertEquals("18446744073709551615,0,128,5000", String.join(",", received).replaceAll("^((?:[^,]*,){3}[^,]*).*", "$1"));
            assertEquals("0xa1b2c3d4", received[6]);
            assertEquals("2", received[7]);
            assertEquals("ok match=1", b.ask("check mr=0 length=5000 seed=9"));
            assertEquals("ok match=0 at=0", b.ask("check mr=0 length=5000 seed=8"));

            String there = word(b.ask("peek mr=0 offset=4321 length=1"), "hex");
            String other = String.format("%02x", Integer.parseInt(there, 16) ^ 0x10);
            b.ask("poke mr=0 offset=4321 hex=" + other);
            assertEquals("ok match=0 at=4321", b.ask("check mr=0 length=5000 seed=9"));
            b.ask("poke mr=0 offset=4321 hex=" + there);
            assertEquals("ok match=1", b.ask("check mr=0 length=5000 seed=9"));
        }
    }

    @Test
    void memoryIsWrittenReadAndAddedTo() throws Exception {
        try (End a = new End(); End b = new End()) {
            a.connect(b);
            b.connect(a);
            String target = b.ask("mr pd=0 bytes=256 access=lwra");
            String remote = " raddr=" + word(target, "addr") + " rkey=" + word(target, "rkey");
            a.ask("mr pd=0 bytes=128 access=l");
            a.ask("fill mr=0 length=64 seed=3");
            a.ask("send qp=0 op=write wr=1 flags=si sge=0:0:30,0:30:34" + remote);
            assertEquals("0", a.completion()[1]);
            assertEquals("ok match=1", b.ask("check mr=0 length=64 seed=3"));
            a.ask("send qp=0 op=read wr=2 sge=0:64:64" + remote);
            assertEquals("0", a.completion()[1]);
            assertEquals("ok match=1", a.ask("check mr=0 offset=64 seed=3"));
            b.ask("poke mr=0 hex=feffffffffffffff");
            a.ask("send qp=0 op=fadd wr=3 count=2 add=18446744073709551615 sge=0:0:8" + remote);
            assertEquals("3", a.completion()[0]);
            assertEquals("4", a.completion()[0]);
            assertEquals("ok hex=fcffffffffffffff", b.ask("peek mr=0 length=8"));
            a.ask("send qp=0 op=cas wr=5 compare=0xfffffffffffffffc swap=1 sge=0:0:8" + remote);
            assertEquals("0", a.completion()[1]);
            assertEquals("ok hex=fcffffffffffffff", a.ask("peek mr=0 length=8"));
            assertEquals("ok hex=0100000000000000", b.ask("peek mr=0 length=8"));
        }
    }

    @Test
    void whatCannotBeIsRefusedAndTheConnectionGoesOn() throws Exception {
        try (End a = new End()) {
            assertEquals("err 38 the verbs in Java have no mw", a.refused("mw pd=0"));
            assertEquals("err 2 there is no mr 0", a.refused("send qp=0 op=send wr=1 sge=0:0:8"));
            assertEquals("err 22 cq needs depth=", a.refused("cq"));
            assertEquals("err 22 wr=x is no number", a.refused("recv qp=0 wr=x"));
            a.ask("mr pd=0 bytes=64 access=l");
            assertEquals("err 34 60 bytes at 5 are outside the MR", a.refused("check mr=0 offset=5 length=60 seed=1"));
            assertTrue(a.refused("send qp=0 op=send wr=1 sge=0:60:8").startsWith("err 22 "));
            assertTrue(a.refused("rts qp=0 psn=1").startsWith("err 22 "));
            assertEquals("ok state=0", a.ask("query qp=0"));
            a.ask("destroy qp=0");
            assertEquals("err 2 there is no qp 0", a.refused("query qp=0"));
        }
    }
}

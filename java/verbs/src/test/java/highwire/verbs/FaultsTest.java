package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Programs and engines that are killed, silent, or impostors: typed exceptions within their time. */
class FaultsTest {
    /** A JVM that WRITEs without pause until it is killed. {@code java Victim DOOR ENDPOINT ADDRESS RKEY}. */
    static final class Victim {
        private Victim() {}

        public static void main(String[] args) throws Exception {
            Context context = Context.open(Path.of(args[0]), Context.DEFAULT_TIMEOUT);
            ProtectionDomain pd = context.protectionDomain();
            CompletionQueue cq = context.completionQueue(64);
            QueuePair qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
            RdmaArena arena = context.arena(1 << 20);
            MemoryRegion memory = pd.register(arena.segment(), Access.ALL);
            System.out.println(qp.endpoint());
            qp.connect(Endpoint.parse(args[1]), ConnectOptions.DEFAULT);
            PostSend write = qp.postSend(new SendRequest(Opcode.WRITE).remote(Long.parseLong(args[2]), Integer.parseInt(args[3]))
                    .sge(memory, 0, End.BYTES));
            Completion completion = new Completion();
            for (long round = 1; ; round++) {
                Mapped.putLong(memory.segment(), 0, round);
                Mapped.putLong(memory.segment(), End.BYTES - 8, round);
                write.exec();
                while (!cq.poll(completion)) {
                    Thread.onSpinWait();
                }
                if (!completion.isSuccess()) {
                    return;
                }
            }
        }
    }

    @Test
    void aKilledProgramLeavesNothingBehindAndHoldsUpNobody() throws Exception {
        try (Engine engine = Engine.start(); End survivor = new End(engine, Service.RC)) {
            long before = engine.files();
            for (int round = 0; round < 3; round++) {
                MemoryRegion target = survivor.pd.register(survivor.arena.segment(), Access.ALL);
                try (QueuePair qp = survivor.pd.queuePair(QueuePairConfig.of(Service.RC, survivor.cq))) {
                    Process victim = new ProcessBuilder(
                            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                            "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classes(), Victim.class.getName(),
                            engine.door.toString(), qp.endpoint().toString(),
                            Long.toString(target.address()), Integer.toString(target.rkey()))
                            .redirectError(ProcessBuilder.Redirect.INHERIT)
                            .start();
                    try {
                        BufferedReader said = new BufferedReader(new InputStreamReader(victim.getInputStream()));
                        qp.connect(Endpoint.parse(said.readLine()), ConnectOptions.DEFAULT);
                        long seen = survivor.word(0);
                        Engine.until("its WRITEs", () -> survivor.word(End.BYTES - 8) > seen + 100);
                    } finally {
                        victim.destroyForcibly();
                        victim.waitFor();
                    }
                    target.close();
                }
                Engine.until("the end of its files", () -> assertDoesNotThrow(engine::files) == before);
            }
        }
    }

    /** The class path, also where the test runs from modules. */
    private static String classes() {
        String modules = System.getProperty("jdk.module.path", "");
        return String.join(File.pathSeparator, List.of(System.getProperty("java.class.path", ""), modules,
                "target/classes", "target/test-classes"));
    }

    @Test
    void aKilledEngineIsNoticedByWhoeverAsksOrWaits() throws Exception {
        Engine engine = Engine.start();
        End end = new End(engine, Service.RC);
        Thread killer = Thread.ofPlatform().start(() -> engine.process.destroyForcibly());
        assertThrows(EngineGoneException.class, () -> end.cq.await(Engine.PATIENCE));
        killer.join();
        engine.process.waitFor();
        assertThrows(EngineGoneException.class, () -> end.context.protectionDomain());
        assertFalse(end.context.valid());
        end.close();
        assertThrows(NoEngineException.class, () -> Context.open(engine.door, Context.DEFAULT_TIMEOUT));
        engine.close();
    }

    @Test
    void withoutAnEngineTheMessageSaysHowToStartOne() {
        String said = assertThrows(NoEngineException.class,
                () -> Context.open(Path.of("/nowhere/door"), Context.DEFAULT_TIMEOUT)).getMessage();
        assertTrue(said.contains("highwire serve"), said);
    }

    /** A socket that answers at the door instead of an engine. */
    private interface Impostor {
        void serve(SocketChannel visitor) throws IOException;
    }

    private static void check(Impostor impostor, Class<? extends VerbsException> expected, String words) throws Exception {
        Path folder = Files.createTempDirectory("door");
        Path door = folder.resolve("door");
        try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(door));
            Thread thread = Thread.ofPlatform().start(() -> {
                try (SocketChannel visitor = server.accept()) {
                    visitor.read(ByteBuffer.allocate(64));
                    impostor.serve(visitor);
                    // It stays until the visitor leaves.
                    visitor.read(ByteBuffer.allocate(64));
                } catch (IOException e) {
                    // The visitor has left.
                }
            });
            VerbsException thrown = assertThrows(expected, () -> Context.open(door, Duration.ofMillis(300)));
            assertTrue(thrown.getMessage().contains(words), thrown.getMessage());
            thread.join();
        } finally {
            Files.delete(door);
            Files.delete(folder);
        }
    }

    private static void say(SocketChannel to, String hex) throws IOException {
        to.write(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    @Test
    void whateverAnswersInsteadOfAnEngineIsNotBelieved() throws Exception {
        check(visitor -> {}, EngineTimeoutException.class, "300 ms");
        check(SocketChannel::close, EngineGoneException.class, "ended");
        check(visitor -> say(visitor, "0000"), EngineTimeoutException.class, "300 ms");
        check(visitor -> say(visitor, "05000000" + "0100" + "0100" + "6f7468657221"), VersionException.class, "other");
        check(visitor -> say(visitor, "00000000" + "0900" + "0000"), EngineGoneException.class, "no engine");
        check(visitor -> say(visitor, "ffffff7f" + "0100" + "0000"), EngineGoneException.class, "no engine");
        long next = Layout.DOOR_VERSION + 1;
        String welcome = String.format("%02x", next) + "00".repeat(7 + 96);
        check(visitor -> say(visitor, "68000000" + "0100" + "0000" + welcome), VersionException.class, "version " + next);
        check(visitor -> say(visitor, "08000000" + "0100" + "0000" + "0100000000000000"), EngineGoneException.class, "no answer");
    }

    @Test
    void aProgramInAnotherLanguageConverses() throws Exception {
        Path peer = Path.of(System.getProperty("highwire.peer", "conversation"));
        assumeTrue(Files.isExecutable(peer), "skipped: " + peer + " is not there");
        try (Engine engine = Engine.start(); End end = new End(engine, Service.RC)) {
            ProcessBuilder builder = new ProcessBuilder(peer.toString()).redirectError(ProcessBuilder.Redirect.INHERIT);
            builder.environment().put("HIGHWIRE_SHM_DIR", engine.folder.toString());
            builder.environment().remove("HIGHWIRE_ADDR");
            Process process = builder.start();
            try (BufferedReader said = process.inputReader(); var tell = process.outputWriter()) {
                String[] words = said.readLine().split(" ");
                end.setWord(2048, 37);
                end.qp.prepare(Access.ALL);
                for (int i = 0; i < 4; i++) {
                    end.receive(i, 4096 + 1024 * i, 1024);
                }
                end.qp.connect(Endpoint.parse(words[0]), ConnectOptions.DEFAULT);
                tell.write(end.qp.endpoint() + " " + end.memory.address() + " " + Integer.toUnsignedString(end.memory.rkey()) + "\n");
                tell.flush();
                assertEquals("the word was 37", said.readLine());
                assertEquals("written by Rust", end.text(0, 15));
                assertEquals(42, end.word(2048));
                for (int i = 0; i < 3; i++) {
                    end.put(8192, "message " + i);
                    end.qp.postSend(new SendRequest(Opcode.SEND).wrId(100).sge(end.memory, 8192, 9)).exec();
                    Completion first = end.success();
                    boolean isReceive = first.isReceive();
                    Completion second = end.success();
                    assertTrue(isReceive != second.isReceive(), "a send and a receive complete");
                    assertEquals(i + " egassem", end.text(4096 + 1024 * i, 9));
                }
                // Its memory is read, too: what it has received lies at 4096.
                PostSend read = end.qp.postSend(new SendRequest(Opcode.READ).remote(Long.parseLong(words[1]) + 4096,
                        Integer.parseUnsignedInt(words[2])).sge(end.memory, 16384, 9));
                read.exec();
                end.success();
                assertEquals("message 2", end.text(16384, 9));
                end.qp.postSend(new SendRequest(Opcode.SEND).inline("end".getBytes())).exec();
                end.success();
                assertEquals("end", said.readLine());
                assertEquals(0, process.waitFor());
            } finally {
                process.destroyForcibly();
            }
        }
    }
}

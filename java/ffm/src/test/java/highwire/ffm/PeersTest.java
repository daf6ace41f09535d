package highwire.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Endpoint;
import highwire.verbs.Opcode;
import highwire.verbs.Service;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The other end is a program in Rust, or one in C that does not know Highwire. */
class PeersTest {
    private static final Path PINGPONG = Path.of("/usr/bin/ibv_rc_pingpong");

    @Test
    void aProgramInRustConverses() throws Exception {
        Path program = Path.of(System.getProperty("highwire.peer", "../../target/debug/examples/conversation"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire-host --example conversation");
        try (End end = new End(Service.RC)) {
            Process process = new ProcessBuilder(program.toString()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            try (BufferedReader in = process.inputReader(); BufferedWriter out = process.outputWriter()) {
                end.qp.prepare(Access.ALL);
                end.receive(1, 4096, 2048);
                end.setWord(2048, 37);
                String[] words = in.readLine().split(" ");
                end.qp.connect(Endpoint.parse(words[0]), ConnectOptions.DEFAULT);
                out.write(end.qp.endpoint() + " " + end.memory.address() + " " + Integer.toUnsignedString(end.memory.rkey()) + "\n");
                out.flush();
                assertEquals("the word was 37", in.readLine());
                assertEquals(42, end.word(2048));
                assertEquals("written by Rust", end.text(0, 15));

                end.put(0, "!avaJ");
                end.request(Opcode.SEND, 0, 5).exec();
                boolean isAnswered = false;
                for (int left = 2; left > 0; left--) {
                    Completion completion = end.success();
                    isAnswered |= completion.isReceive() && completion.byteLen() == 5;
                }
                assertTrue(isAnswered);
                assertEquals("Java!", end.text(4096, 5));
                end.put(0, "end");
                end.request(Opcode.SEND, 0, 3).exec();
                assertEquals("end", in.readLine());
                assertTrue(process.waitFor(60, TimeUnit.SECONDS));
                assertEquals(0, process.exitValue());
            } finally {
                process.destroyForcibly();
            }
        }
    }

    @Test
    void rdmaCoresPingPongIsTheClient() throws Exception {
        int port = freePort();
        Process java = java(port);
        try {
            assertEquals("listening at " + port, java.inputReader().readLine());
            Process c = c(port, "127.0.0.1");
            check(c);
            check(java);
        } finally {
            java.destroyForcibly();
        }
    }

    @Test
    void rdmaCoresPingPongIsTheServer() throws Exception {
        int port = freePort();
        Process c = c(port);
        try {
            // The program prints nothing when it listens, so a peer that comes too early tries again.
            Process java = java(port, "127.0.0.1");
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (java.waitFor() != 0 && c.isAlive() && System.nanoTime() < deadline) {
                java = java(port, "127.0.0.1");
            }
            check(java);
            check(c);
        } finally {
            c.destroyForcibly();
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static void check(Process process) throws Exception {
        // Read meanwhile: a process whose output no one reads does not end.
        CompletableFuture<String> said = CompletableFuture.supplyAsync(() -> process.inputReader().lines().collect(Collectors.joining("\n")));
        if (!process.waitFor(120, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            fail("it goes on for ever");
        }
        assertEquals(0, process.exitValue(), said.get(60, TimeUnit.SECONDS));
    }

    /** The program of rdma-core, over the drop-in library. */
    private static Process c(int port, String... server) throws IOException {
        assumeTrue(Files.isExecutable(PINGPONG), "skipped: " + PINGPONG + " is not there: apt-get install ibverbs-utils");
        assumeTrue(Files.exists(End.LIBRARY), "skipped: " + End.LIBRARY + " is not there: cargo xtask libs");
        List<String> words = new ArrayList<>(List.of(PINGPONG.toString(), "-g", "1", "-p", "" + port, "-n", "500", "-s", "3000"));
        words.addAll(List.of(server));
        ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
        builder.environment().put("LD_LIBRARY_PATH", End.LIBRARY.getParent().toAbsolutePath().toString());
        return builder.start();
    }

    /** The same in Java, which finds the library as programs in C do. */
    private static Process java(int port, String... server) throws IOException {
        List<String> words = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=highwire.ffm", "-p", "target/classes:../verbs/target/classes:../engine/target/classes", "-m", "highwire.ffm/highwire.ffm.RcPingpong", End.DEVICE, "" + port, "3000", "500"));
        words.addAll(List.of(server));
        ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
        builder.environment().put("LD_LIBRARY_PATH", End.LIBRARY.getParent().toAbsolutePath().toString());
        return builder.start();
    }
}

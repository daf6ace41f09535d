package highwire.benchmarks.gets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.memcached.MemcachedServer;
import highwire.memcached.StoreOptions;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The comparison of GETs, briefly. */
@Timeout(240)
class GetsTest {
    private static final Path PROGRAM = Path.of(System.getProperty("highwire.program", "highwire"));
    private static final Path MEMCACHED = Path.of("/usr/bin/memcached");

    @Test
    void theTextProtocolByHandGetsWhatWasSetAndNothingElse() throws IOException {
        InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        try (MemcachedServer server = MemcachedServer.open(any, StoreOptions.DEFAULT);
                TextGetter blocking = new TextGetter(server.address(), 4, false);
                TextGetter polling = new TextGetter(server.address(), 4, true)) {
            blocking.set("a", Gets.bytes("1234"));
            assertArrayEquals(Gets.bytes("1234"), polling.get("a"));
            assertArrayEquals(Gets.bytes("1234"), blocking.get("a"));
            assertNull(polling.get("b"));
        }
    }

    @Test
    void everyClientGetsTheRightValues() throws Exception {
        assumeTrue(Files.isExecutable(PROGRAM), "skipped: " + PROGRAM + " is not there: cargo build -p highwire");
        assumeTrue(Files.isExecutable(MEMCACHED), "skipped: " + MEMCACHED + " is not there: apt-get install memcached");
        Process process = new ProcessBuilder(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp", System.getProperty("java.class.path"),
                "-Dhighwire.program=" + PROGRAM, "-Dhighwire.memcached=" + MEMCACHED, "-Dhighwire.gets=1000", Gets.class.getName()))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String text = new String(process.getInputStream().readAllBytes());
        // A value of another key would end it.
        assertEquals(0, process.waitFor(), text);
        for (String client : new String[] {"Highwire READ", "NIO by hand, polling", "NIO by hand, blocking", "xmemcached", "spymemcached, binary"}) {
            assertTrue(text.lines().anyMatch(line -> line.matches("\\| " + client + " \\| [^|]+\\|( [0-9.]+ \\|){7}")), text);
        }
    }
}

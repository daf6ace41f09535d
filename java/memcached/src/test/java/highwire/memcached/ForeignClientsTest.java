package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Programs that were written for memcached, against this server. */
class ForeignClientsTest {
    /** The system's, which sees the system's packages. */
    private static final String PYTHON = "/usr/bin/python3";
    private MemcachedServer server;

    @BeforeEach
    void start() throws IOException {
        server = MemcachedServer.open(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), StoreOptions.DEFAULT);
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
    }

    private static String run(int expected, String... command) throws Exception {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(expected, process.waitFor(), said);
        return said;
    }

    private static void needs(String packages, String... probe) throws InterruptedException {
        boolean isThere;
        try {
            Process process = new ProcessBuilder(probe).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
            isThere = process.waitFor() != 127;
            isThere &= !probe[0].equals(PYTHON) || process.exitValue() == 0;
        } catch (IOException e) {
            isThere = false;
        }
        assumeTrue(isThere, "skipped: apt-get install " + packages);
    }

    private String[] capable(String protocol) {
        String port = Integer.toString(server.address().getPort());
        return new String[] {"memccapable", "-h", server.address().getAddress().getHostAddress(), "-p", port, protocol, "-t", "60"};
    }

    @Test
    void memccapablePassesAllTestsOfTheTextProtocol() throws Exception {
        needs("libmemcached-tools", "memccapable", "--version");
        String said = run(0, capable("-a"));
        assertTrue(said.contains("All tests passed") && said.contains("ascii prepend"), said);
    }

    @Test
    void memccapablePassesAllTestsOfTheBinaryProtocol() throws Exception {
        needs("libmemcached-tools", "memccapable", "--version");
        String said = run(0, capable("-b"));
        assertTrue(said.contains("All tests passed") && said.contains("binary prepend"), said);
    }

    @Test
    void pymemcacheAndPythonBinaryMemcachedConverse() throws Exception {
        needs("python3-pymemcache python3-binary-memcached", PYTHON, "-c", "import pymemcache, bmemcached");
        Path script = Path.of(ForeignClientsTest.class.getResource("/clients.py").toURI());
        String port = Integer.toString(server.address().getPort());
        String said = run(0, PYTHON, script.toString(), server.address().getAddress().getHostAddress(), port);
        assertTrue(said.contains("all conversations were as expected"), said);
    }
}

package highwire.hdfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Engines and servers that go and come: calls fail as over TCP, or go over TCP. */
@Timeout(value = 600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FaultsTest {
    private static final long PATIENCE_NANOS = 120_000_000_000L;

    /** Makes directories, each until it works. */
    private static void work(FileSystem files, String folder) throws Exception {
        for (int i = 0; i < 20; i++) {
            long deadline = System.nanoTime() + PATIENCE_NANOS;
            while (true) {
                try {
                    assertTrue(files.mkdirs(new Path(folder + "/" + i)));
                    break;
                } catch (IOException e) {
                    // The call that was under way.
                    if (System.nanoTime() > deadline) {
                        throw e;
                    }
                    Thread.sleep(20);
                }
            }
        }
        assertEquals(20, files.listStatus(new Path(folder)).length);
    }

    @Test
    void withoutAnEngineCallsGoOverTcpAndWithOneTheyComeBack() throws Exception {
        System.setProperty("highwire.door", "/nowhere/door");
        try (Cluster cluster = new Cluster(true); FileSystem files = cluster.fileSystem()) {
            work(files, "/without");
            assertEquals(0, cluster.calls());
            try (Served first = Served.start()) {
                awaitCalls(cluster, files);
                work(files, "/first");
                first.process.destroyForcibly().waitFor();
                Thread.sleep(200);
                work(files, "/killed");
            }
            long before = cluster.calls();
            try (Served second = Served.start()) {
                cluster.cluster.restartNameNode(true);
                awaitCalls(cluster, files);
                work(files, "/second");
                assertTrue(cluster.calls() > before);
            }
        }
    }

    /** Server and client look for an engine from time to time. */
    private static void awaitCalls(Cluster cluster, FileSystem files) throws Exception {
        long before = cluster.calls();
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (cluster.calls() == before) {
            assertTrue(System.nanoTime() < deadline, "a call over jvRPC");
            try {
                files.exists(new Path("/"));
            } catch (IOException e) {
                // Of the session that has just ended.
            }
            Thread.sleep(100);
        }
    }
}

package highwire.hdfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.SocketFactory;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolTranslatorPB;
import org.apache.hadoop.ipc.Client;
import org.apache.hadoop.ipc.RPC;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A client's view of HDFS: the same over jvRPC and over TCP. All tests of a class share one cluster. */
@Timeout(value = 600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
abstract class FilesContract {
    private static Served engine;
    private static Cluster cluster;
    private final boolean usesJvRpc;
    private final String mode;
    private FileSystem files;
    private long callsBefore;

    FilesContract(boolean usesJvRpc, String mode) {
        this.usesJvRpc = usesJvRpc;
        this.mode = mode;
    }

    @BeforeEach
    void open() throws Exception {
        if (cluster == null) {
            engine = Served.start();
            cluster = new Cluster(usesJvRpc, mode);
        }
        callsBefore = cluster.calls();
        files = cluster.fileSystem();
    }

    @AfterEach
    void close() throws IOException {
        files.close();
        // Each class tests the transport that its name says.
        assertEquals(usesJvRpc, cluster.calls() > callsBefore);
    }

    @AfterAll
    static void stop() throws IOException {
        if (cluster != null) {
            cluster.close();
            cluster = null;
        }
        if (engine != null) {
            engine.close();
            engine = null;
        }
    }

    private static void write(FileSystem files, Path path, byte[] bytes) throws IOException {
        try (FSDataOutputStream out = files.create(path)) {
            out.write(bytes);
        }
    }

    @Test
    void filesAreWrittenAndRead() throws IOException {
        byte[] bytes = new byte[3_000_000];
        new Random(5).nextBytes(bytes);
        Path path = new Path("/written/file");
        write(files, path, bytes);
        assertEquals(bytes.length, files.getFileStatus(path).getLen());
        assertEquals(1, files.getFileBlockLocations(path, 0, bytes.length).length);
        try (FSDataInputStream in = files.open(path)) {
            assertArrayEquals(bytes, in.readAllBytes());
        }
        assertTrue(files.rename(path, new Path("/written/other")));
        assertFalse(files.exists(path));
        assertTrue(files.delete(new Path("/written"), true));
        assertFalse(files.exists(new Path("/written")));
    }

    @Test
    void exceptionsCarryTheirClassesAndTexts() throws IOException {
        String said = assertThrows(FileNotFoundException.class, () -> files.open(new Path("/none"))).getMessage();
        assertTrue(said.startsWith("File does not exist: /none"), said);
        write(files, new Path("/once"), new byte[1]);
        assertThrows(FileAlreadyExistsException.class, () -> files.create(new Path("/once"), false));
        // An exception for which the client has no class of its own.
        RemoteException remote = assertThrows(RemoteException.class, () -> files.setReplication(new Path("/once"), (short) 1000));
        assertEquals(IOException.class.getName(), remote.getClassName());
        // An error that is no exception.
        RemoteException error = assertThrows(RemoteException.class, () -> ((DistributedFileSystem) files).getClient().getFileInfo("relative"));
        assertEquals(AssertionError.class.getName(), error.getClassName());
        assertTrue(error.getMessage().startsWith("Absolute path required"), error.getMessage());
    }

    @Test
    void whoCallsIsWhoTheServerSees() throws Exception {
        files.mkdirs(new Path("/private"), new FsPermission("700"));
        files.mkdirs(new Path("/open"));
        files.setPermission(new Path("/open"), new FsPermission("777"));
        UserGroupInformation alice = UserGroupInformation.createUserForTesting("alice", new String[] {"guests"});
        alice.doAs((PrivilegedExceptionAction<Void>) () -> {
            try (FileSystem hers = cluster.fileSystem()) {
                hers.mkdirs(new Path("/open/hers"));
                assertEquals("alice", hers.getFileStatus(new Path("/open/hers")).getOwner());
                assertThrows(AccessControlException.class, () -> hers.listStatus(new Path("/private")));
            }
            return null;
        });
        assertEquals(0, files.listStatus(new Path("/private")).length);
    }

    @Test
    void anAnswerThatIsLongerThanASlotArrivesWhole() throws IOException {
        int count = 300;
        for (int i = 0; i < count; i++) {
            files.mkdirs(new Path("/long/directory-with-a-name-" + i));
        }
        assertEquals(count, files.listStatus(new Path("/long")).length);
    }

    @Test
    void manyClientsWorkAtOnce() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            Path folder = new Path("/many/" + i);
            threads.add(Thread.ofPlatform().start(() -> {
                try (FileSystem own = cluster.fileSystem()) {
                    for (int round = 0; round < 10; round++) {
                        assertTrue(own.mkdirs(new Path(folder, "round" + round)));
                        assertEquals(round + 1, own.listStatus(folder).length);
                    }
                } catch (Throwable e) {
                    failure.set(e);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new AssertionError(failure.get());
        }
        assertEquals(12, files.listStatus(new Path("/many")).length);
    }

    @Test
    void aCallThatIsTriedAgainIsNotDoneTwice() throws Exception {
        files.mkdirs(new Path("/again"));
        ClientNamenodeProtocolPB proxy = RPC.getProxy(ClientNamenodeProtocolPB.class, RPC.getProtocolVersion(ClientNamenodeProtocolPB.class),
                cluster.nameNode(), UserGroupInformation.getCurrentUser(), cluster.conf(), SocketFactory.getDefault());
        try (ClientNamenodeProtocolTranslatorPB nameNode = new ClientNamenodeProtocolTranslatorPB(proxy)) {
            int call = Client.nextCallId();
            Client.setCallIdAndRetryCountUnprotected(call, 0, null);
            assertTrue(nameNode.delete("/again", true));
            Client.setCallIdAndRetryCountUnprotected(call, 1, null);
            assertTrue(nameNode.delete("/again", true), "the answer of the first time");
            assertFalse(nameNode.delete("/again", true), "a call of its own finds nothing");
        }
    }
}

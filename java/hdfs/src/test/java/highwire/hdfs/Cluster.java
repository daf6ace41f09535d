package highwire.hdfs;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A NameNode and a DataNode in this JVM, with Highwire's engine for the NameNode's protocol. */
final class Cluster implements AutoCloseable {
    static final String ENGINE = "rpc.engine.org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB";
    static final String NAME = "org.apache.hadoop.ipc.HighwireRpcEngine";
    /** Small, so that answers of ordinary size do not fit. */
    static final int SLOT_BYTES = 4096;

    final MiniDFSCluster cluster;
    private final Configuration conf;
    private final Path folder;

    Cluster(boolean usesJvRpc) throws IOException {
        this(usesJvRpc, "polling");
    }

    Cluster(boolean usesJvRpc, String mode) throws IOException {
        folder = Files.createTempDirectory("hdfs-");
        conf = new HdfsConfiguration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.toString());
        conf.set(ENGINE, NAME);
        conf.setInt(Wire.SLOT, SLOT_BYTES);
        conf.set(Wire.MODE, mode);
        conf.setInt("dfs.namenode.handler.count", 2);
        conf.setInt("dfs.datanode.handler.count", 2);
        conf.setInt("dfs.replication", 1);
        cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).nameNodePort(freePort()).build();
        cluster.waitActive();
        conf.setBoolean(Wire.ENABLED, usesJvRpc);
    }

    /** A free port whose successor, which jvRPC uses, is free as well. */
    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket first = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                    ServerSocket second = new ServerSocket(first.getLocalPort() + 1, 1, InetAddress.getLoopbackAddress())) {
                return second.getLocalPort() - 1;
            } catch (IOException | IllegalArgumentException e) {
                // The next port is another program's, or there is none.
            }
        }
    }

    /** Of a client of its own. */
    FileSystem fileSystem() throws IOException {
        return FileSystem.newInstance(cluster.getURI(), conf);
    }

    Configuration conf() {
        return conf;
    }

    InetSocketAddress nameNode() {
        return new InetSocketAddress("127.0.0.1", cluster.getNameNodePort());
    }

    /** Calls of this JVM over jvRPC. */
    long calls() {
        return Sessions.with(new InetSocketAddress(nameNode().getAddress(), nameNode().getPort() + 1)).calls();
    }

    @Override
    public void close() throws IOException {
        cluster.shutdown();
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}

package highwire.hdfs;

import java.io.BufferedReader;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import org.HdrHistogram.Histogram;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;

/**
 * {@code getBlockLocations} of a stock client at a stock NameNode in another JVM, over jvRPC and over TCP in turns of a hundred calls. Wants an engine: {@code
 * -Dhighwire.door}, or the only one. {@code -Dhighwire.count} calls of each kind are counted after as many that are not.
 */
public final class NameNodeLatency {
    private static final int COUNT = Integer.getInteger("highwire.count", 20_000);
    private static final int TURN = 100;
    private static final String FILE = "/measured";

    private NameNodeLatency() {}

    private static void serve() throws Exception {
        try (Cluster cluster = new Cluster(true); FileSystem files = cluster.fileSystem()) {
            try (FSDataOutputStream out = files.create(new org.apache.hadoop.fs.Path(FILE))) {
                out.write(new byte[1 << 20]);
            }
            System.out.println(cluster.nameNode().getPort());
            while (System.in.read() >= 0) {
                // Until the other JVM has finished, or is gone.
            }
        }
        System.exit(0);
    }

    private static void turn(ClientProtocol nameNode, Histogram histogram) throws Exception {
        for (int i = 0; i < TURN; i++) {
            long start = System.nanoTime();
            nameNode.getBlockLocations(FILE, 0, 1);
            histogram.recordValue(System.nanoTime() - start);
        }
    }

    private static void show(String what, Histogram histogram) {
        System.out.printf("%-28s min %6.1f  p50 %6.1f  p90 %6.1f  p99 %7.1f  p99.9 %8.1f µs  (%d)%n", what, histogram.getMinValue() / 1e3,
                histogram.getValueAtPercentile(50) / 1e3, histogram.getValueAtPercentile(90) / 1e3,
                histogram.getValueAtPercentile(99) / 1e3, histogram.getValueAtPercentile(99.9) / 1e3, histogram.getTotalCount());
    }

    private static ClientProtocol nameNode(int port, boolean usesJvRpc) throws Exception {
        Configuration conf = new HdfsConfiguration();
        conf.set(Cluster.ENGINE, Cluster.NAME);
        conf.setBoolean(Wire.ENABLED, usesJvRpc);
        return ((DistributedFileSystem) FileSystem.newInstance(URI.create("hdfs://127.0.0.1:" + port), conf)).getClient().getNamenode();
    }

    /**
     * Measures.
     *
     * @param args {@code serve} in the other JVM
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            serve();
            return;
        }
        Process server = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"), "-Dhighwire.door=" + System.getProperty("highwire.door", ""),
                NameNodeLatency.class.getName(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said = server.inputReader();
        String line = said.readLine();
        while (line != null && !line.matches("\\d+")) {
            line = said.readLine();
        }
        int port = Integer.parseInt(line);
        ClientProtocol[] nameNodes = {nameNode(port, true), nameNode(port, false)};
        System.out.println(Runtime.getRuntime().availableProcessors() + " processors, load "
                + Files.readString(Path.of("/proc/loadavg")).strip() + ", Java " + Runtime.version());
        Histogram[] counted = {new Histogram(3), new Histogram(3)};
        for (int done = -COUNT; done < COUNT; done += TURN) {
            if (done == 0) {
                counted[0].reset();
                counted[1].reset();
            }
            for (int i = 0; i < nameNodes.length; i++) {
                turn(nameNodes[i], counted[i]);
            }
        }
        show("getBlockLocations: jvRPC", counted[0]);
        show("getBlockLocations: TCP", counted[1]);
        server.outputWriter().close();
        server.waitFor();
        System.exit(0);
    }
}

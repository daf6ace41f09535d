package highwire.benchmarks.gets;

import highwire.memcached.MemcachedServer;
import highwire.verbs.Engines;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** The server programs, and their processor time. */
final class Servers {
    private Servers() {}

    /** A server: its process, and where it listens. */
    record Server(Process process, InetSocketAddress address) implements AutoCloseable {
        /** The time that its threads have run so far, in nanoseconds, without threads that have ended. */
        long cpuNanos() throws IOException {
            return Servers.cpuNanos(process.pid());
        }

        @Override
        public void close() {
            process.destroy();
            process.onExit().join();
        }
    }

    static long cpuNanos(long pid) throws IOException {
        long sum = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/" + pid + "/task"))) {
            for (Path thread : threads) {
                try {
                    sum += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
                } catch (IOException e) {
                    // The thread has just ended.
                }
            }
        }
        return sum;
    }

    /** The memcached in C, with one thread. */
    static Server memcached(String program) throws IOException, InterruptedException {
        int port;
        try (ServerSocket unused = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = unused.getLocalPort();
        }
        Process process = new ProcessBuilder(program, "-l", "127.0.0.1", "-p", Integer.toString(port), "-t", "1", "-u", "nobody")
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        while (process.isAlive()) {
            try (Socket socket = new Socket()) {
                socket.connect(address);
                return new Server(process, address);
            } catch (IOException e) {
                Thread.sleep(10);
            }
        }
        throw new IOException(program + " has ended");
    }

    /** Highwire's, in a JVM of its own. */
    static Server highwire(String door) throws IOException {
        List<String> line = List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx512m", "-cp", System.getProperty("java.class.path"),
                "-D" + Engines.DOOR_PROPERTY + "=" + door, MemcachedServer.class.getName(), "--port", "0");
        Process process = new ProcessBuilder(line).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said = process.inputReader();
        String where = said.readLine();
        if (where == null) {
            throw new IOException("the server in Java has ended");
        }
        return new Server(process, new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(where.substring(where.lastIndexOf(':') + 1))));
    }
}

package highwire.benchmarks.echo;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import java.io.IOException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.agrona.CloseHelper;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.YieldingIdleStrategy;

/** Aeron, with its driver in the server's JVM, in one thread: over shared memory the messages pass it by. */
record AeronEcho(boolean isUdp) implements Echo {
    private static final int THERE = 1001;
    private static final int BACK = 1002;
    private static final int TERM_BYTES = 1 << 20;
    /**
     * The time without a sign of life after which Aeron gives up an end; its own 5 and 10 seconds are too
     * short for a machine whose cores are all busy.
     */
    private static final Duration PATIENCE = Duration.ofSeconds(100);

    /** The content of introductions: where the driver is, and a port. */
    private String channel(int port) {
        return isUdp ? "aeron:udp?term-length=" + TERM_BYTES + "|endpoint=127.0.0.1:" + port : "aeron:ipc?term-length=" + TERM_BYTES;
    }

    private static int unusedPort() throws IOException {
        try (DatagramSocket socket = new DatagramSocket(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))) {
            return socket.getLocalPort();
        }
    }

    private static Aeron client(String folder) {
        return Aeron.connect(new Aeron.Context().aeronDirectoryName(folder).driverTimeoutMs(PATIENCE.toMillis()));
    }

    private static void offer(Publication to, DirectBuffer buffer, int offset, int length) {
        while (to.offer(buffer, offset, length) < 0) {
            if (to.isClosed() || Thread.currentThread().isInterrupted()) {
                throw new IllegalStateException("the publication was closed");
            }
            Thread.onSpinWait();
        }
    }

    /** The server's part and its thread. */
    private final class Answering implements Server {
        private final Path folder = Files.createTempDirectory(Path.of("/dev/shm"), "echo-aeron-");
        private final int port = unusedPort();
        private final MediaDriver driver;
        private final Aeron aeron;
        private final Subscription there;
        private Publication back;
        private Thread thread;

        Answering() throws IOException {
            driver = MediaDriver.launch(new MediaDriver.Context().aeronDirectoryName(folder.resolve("driver").toString())
                    .threadingMode(ThreadingMode.SHARED).sharedIdleStrategy(isUdp ? new YieldingIdleStrategy() : new BackoffIdleStrategy()).dirDeleteOnShutdown(true)
                    .driverTimeoutMs(PATIENCE.toMillis()).clientLivenessTimeoutNs(PATIENCE.toNanos()).publicationUnblockTimeoutNs(2 * PATIENCE.toNanos())
                    .imageLivenessTimeoutNs(PATIENCE.toNanos()).publicationConnectionTimeoutNs(PATIENCE.toNanos()));
            aeron = client(driver.aeronDirectoryName());
            there = aeron.addSubscription(channel(port), THERE);
        }

        @Override
        public String introduction() {
            return driver.aeronDirectoryName() + " " + port;
        }

        @Override
        public void meet(String client) {
            back = aeron.addPublication(channel(Integer.parseInt(client)), BACK);
            thread = Thread.ofPlatform().name("echo").daemon().start(this::run);
        }

        private void run() {
            FragmentHandler answer = new FragmentAssembler((buffer, offset, length, header) -> offer(back, buffer, offset, length));
            try {
                while (!Thread.currentThread().isInterrupted()) {
                    if (there.poll(answer, 10) == 0) {
                        Thread.onSpinWait();
                    }
                }
            } catch (RuntimeException e) {
                // One of the ends was closed.
            }
        }

        @Override
        public void close() throws Exception {
            if (thread != null) {
                thread.interrupt();
                thread.join();
            }
            CloseHelper.closeAll(aeron, driver);
            Files.deleteIfExists(folder);
        }
    }

    @Override
    public Server serve(int bytes) throws IOException {
        return new Answering();
    }

    @Override
    public Client connect(String server, int bytes) throws IOException {
        String[] words = server.split(" ");
        int port = unusedPort();
        Aeron aeron = client(words[0]);
        Subscription back = aeron.addSubscription(channel(port), BACK);
        Publication there = aeron.addPublication(channel(Integer.parseInt(words[1])), THERE);
        UnsafeBuffer message = new UnsafeBuffer(ByteBuffer.allocateDirect(bytes));
        int[] come = new int[1];
        FragmentHandler read = new FragmentAssembler((buffer, offset, length, header) -> come[0] = length == bytes ? buffer.getInt(offset) : -length);
        return new Turns() {
            @Override
            public String introduction() {
                return Integer.toString(port);
            }

            @Override
            int exchange(int number) {
                message.putInt(0, number);
                come[0] = 0;
                offer(there, message, 0, bytes);
                while (come[0] == 0) {
                    if (back.poll(read, 10) == 0) {
                        Thread.onSpinWait();
                    }
                }
                return come[0];
            }

            @Override
            public void close() {
                aeron.close();
            }
        };
    }
}

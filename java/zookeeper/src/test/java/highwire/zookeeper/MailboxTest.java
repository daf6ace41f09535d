package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.verbs.Bell;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectableChannel;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Two links with mailboxes, without ZooKeeper between them. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class MailboxTest {
    private static final int DEPTH = 4;
    private static final int SEGMENT = 256;
    /** The offset of an introduction's words. */
    private static final int SEGMENT_WORD = 3;
    private static final int SLEEPER_WORD = 6;
    private static final int BELL_WORD = 8;

    private Engine engine;
    private Device device;
    private End left;
    private End right;

    /** A link and the thread's part of it. */
    private final class End implements AutoCloseable {
        final CompletionChannel channel = device.context().completionChannel();
        final CompletionQueue received = device.context().completionQueue(2 * DEPTH, channel);
        final Sleeper sleeper = new Sleeper(device, channel);
        final Link link = new Link(device, channel, received, 1, sleeper);
        private final FrameReader reader = new FrameReader(length -> { });
        private final Queue<ByteBuffer> frames = new ArrayDeque<>();

        End() throws IOException {}

        String[] words() {
            return link.introduction().split(" ");
        }

        void send(int bytes, int number) throws IOException {
            link.send(ByteBuffer.allocate(4 + bytes).putInt(0, bytes).putInt(4, number));
        }

        /** The number in the next frame, or -1. */
        int take() throws IOException {
            while (frames.isEmpty() && link.takeMail(reader, frames)) {
                // A frame may come in several messages.
            }
            ByteBuffer frame = frames.poll();
            return frame == null ? -1 : frame.getInt(0);
        }

        /** As the hub and the client do: only the bell can end the wait in time. */
        int await() throws IOException, InterruptedException {
            int number = take();
            while (number < 0) {
                sleeper.lieDown();
                if (!link.hasMail()) {
                    channel.await(Duration.ofHours(1));
                }
                sleeper.getUp();
                number = take();
            }
            return number;
        }

        @Override
        public void close() {
            Device.close(link, sleeper, received, channel);
        }
    }

    @BeforeEach
    void open() throws Exception {
        System.setProperty(Settings.DEPTH, Integer.toString(DEPTH));
        System.setProperty(Settings.SEGMENT, Integer.toString(SEGMENT));
        engine = Engine.start();
        device = Device.acquire();
        left = new End();
        right = new End();
    }

    @AfterEach
    void close() throws Exception {
        System.clearProperty(Settings.DEPTH);
        System.clearProperty(Settings.SEGMENT);
        Device.close(left, right);
        device.release();
        engine.close();
    }

    private void connect() throws IOException {
        left.link.connect(right.link.introduction());
        right.link.connect(left.link.introduction());
        assertTrue(left.link.hasMailbox() && right.link.hasMailbox());
    }

    @Test
    void framesComeInOrderAndWhateverHasNoRoomWaits() throws Exception {
        connect();
        int count = 40;
        for (int number = 0; number < count; number++) {
            left.send(4 + 37 * number, number);
        }
        assertTrue(left.link.hasBacklog(), "a mailbox of " + DEPTH * SEGMENT + " bytes cannot hold all of it");
        for (int number = 0; number < count; number++) {
            int came = right.take();
            while (came < 0) {
                // The taker rang, because the sender wanted room.
                assertNull(left.channel.await(Duration.ofHours(1)));
                left.link.flush();
                came = right.take();
            }
            assertEquals(number, came);
        }
        assertFalse(left.link.hasBacklog());
        assertEquals(-1, right.take());
    }

    @Test
    void noMessageIsSleptThrough() throws Exception {
        connect();
        int count = 20_000;
        try (ExecutorService threads = Executors.newFixedThreadPool(2)) {
            Future<?> echo = threads.submit(() -> {
                for (int i = 0; i < count; i++) {
                    right.send(8, right.await());
                }
                return null;
            });
            Future<?> asked = threads.submit(() -> {
                for (int i = 0; i < count; i++) {
                    left.send(8, i);
                    assertEquals(i, left.await());
                }
                return null;
            });
            try {
                asked.get(120, TimeUnit.SECONDS);
                echo.get(120, TimeUnit.SECONDS);
            } finally {
                threads.shutdownNow();
            }
        }
    }

    private final List<SelectableChannel> ringers = new ArrayList<>();

    private boolean hasRung(Bell bell) {
        int before = ringers.size();
        try {
            for (SelectableChannel ringer = bell.accept(); ringer != null; ringer = bell.accept()) {
                ringers.add(ringer);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        // Connecting is the first ring.
        return ringers.stream().filter(bell::take).count() > 0 || ringers.size() > before;
    }

    @Test
    void aSleeperIsRungForOnceAndWhoeverIsAwakeNever() throws Exception {
        try (Bell bell = device.context().bell()) {
            String[] words = right.words();
            words[BELL_WORD] = Long.toString(bell.number());
            left.link.connect(String.join(" ", words));
            right.link.connect(left.link.introduction());
            left.send(8, 1);
            right.sleeper.lieDown();
            left.send(8, 2);
            Server.until("the ring", () -> hasRung(bell));
            left.send(8, 3);
            right.sleeper.getUp();
            left.send(8, 4);
            assertFalse(hasRung(bell), "one sleep, one ring");
            right.sleeper.lieDown();
            assertEquals(1, right.take());
            left.send(8, 5);
            Server.until("the next ring", () -> hasRung(bell));
        }
    }

    @Test
    void aMessageThatIsLongerThanItsSlotIsNotBelieved() throws Exception {
        // The sender believes the slots longer than they are, so its message ends behind the slot, and it
        // chooses the bytes where the message ought to end.
        String[] words = right.words();
        words[SEGMENT_WORD] = Integer.toString(SEGMENT + 8);
        left.link.connect(String.join(" ", words));
        right.link.connect(left.link.introduction());
        int sequence = Integer.reverseBytes(1);
        left.link.send(ByteBuffer.allocate(24).putInt(16, Integer.reverseBytes(SEGMENT + 1)).putInt(20, sequence));
        IOException why = assertThrows(IOException.class, right::take);
        assertTrue(why.getMessage().contains((SEGMENT + 1) + " bytes"), why.getMessage());
    }

    @Test
    void whatIsNoMailboxIsRefused() throws Exception {
        for (int word : new int[] {SEGMENT_WORD, SEGMENT_WORD - 1, BELL_WORD, SLEEPER_WORD}) {
            String[] words = right.words();
            words[word] = word == SLEEPER_WORD ? "x" : "0";
            GreetingException why = assertThrows(GreetingException.class, () -> left.link.connect(String.join(" ", words)));
            assertNotNull(why.getMessage());
            assertFalse(left.link.hasMailbox());
        }
    }

    @Test
    void aPeerThatIsGoneBreaksTheConnection() throws Exception {
        connect();
        right.close();
        assertThrows(IOException.class, () -> {
            for (int number = 0; number <= DEPTH; number++) {
                left.send(8, number);
            }
        });
        assertThrows(IOException.class, left.link::flush, "what was lost with it is not forgotten");
    }
}

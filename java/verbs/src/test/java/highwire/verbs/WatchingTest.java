package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;

/** What an operator sees of a program: numbers and events of a flight recording. */
final class WatchingTest extends WithEngine {
    private static List<RecordedEvent> named(List<RecordedEvent> events, String name) {
        return events.stream().filter(event -> event.getEventType().getName().equals("highwire." + name)).toList();
    }

    private static Completion next(CompletionQueue queue) {
        Completion completion = new Completion();
        Engine.until("a completion", () -> queue.poll(completion));
        return completion;
    }

    @Test
    void numbersAndEventsTellWhatWasDone() throws Exception {
        Path file = Files.createTempFile("highwire-watching-", ".jfr");
        ContextMetrics metrics;
        try (Recording recording = new Recording()) {
            recording.enable("highwire.Wait").withThreshold(Duration.ZERO);
            recording.start();
            try (Context context = engine.context()) {
                try (CompletionChannel channel = context.completionChannel();
                        ProtectionDomain pd = context.protectionDomain();
                        RdmaArena arena = context.arena(1 << 12);
                        CompletionQueue cq = context.completionQueue(16, channel);
                        QueuePair mine = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                        QueuePair peers = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                        MemoryRegion memory = pd.register(arena.allocate(64), Access.REMOTE_WRITE | Access.LOCAL_WRITE)) {
                    mine.connect(peers.endpoint(), ConnectOptions.DEFAULT);
                    peers.connect(mine.endpoint(), ConnectOptions.DEFAULT);
                    PostSend write = mine.postSend(new SendRequest(Opcode.WRITE).remote(memory.address(), memory.rkey()).sge(memory, 32, 8));
                    for (int i = 0; i < 3; i++) {
                        write.exec();
                        assertEquals(CompletionStatus.SUCCESS, next(cq).status());
                    }
                    assertNull(channel.await(Duration.ofMillis(1)));
                    metrics = context.metrics();
                    assertEquals(new ContextMetrics(2, 1, 3, 0, 3, 0), metrics);
                    mine.postSend(new SendRequest(Opcode.WRITE).wrId(77).remote(memory.address(), memory.rkey() ^ 1).sge(memory, 32, 8)).exec();
                    assertEquals(CompletionStatus.REMOTE_ACCESS, next(cq).status());
                    assertEquals(new ContextMetrics(2, 1, 3, 1, 4, 1), context.metrics());
                }
                assertEquals(new ContextMetrics(0, 0, 3, 1, 4, 1), context.metrics(), "what closed objects did is not forgotten");
            }
            recording.stop();
            recording.dump(file);
        }
        List<RecordedEvent> events = RecordingFile.readAllEvents(file);
        Files.delete(file);
        assertEquals(engine.door.toString(), named(events, "ContextOpen").getFirst().getString("door"));
        assertEquals(engine.process.pid(), named(events, "ContextOpen").getFirst().getLong("enginePid"));
        assertEquals(2, named(events, "Connect").size());
        assertTrue(named(events, "Connect").stream().allMatch(event -> event.getBoolean("isOfSameEngine")));
        assertFalse(named(events, "Wait").getFirst().getBoolean("hasReported"));
        RecordedEvent failed = named(events, "FailedCompletion").getFirst();
        assertEquals("77 REMOTE_ACCESS", failed.getLong("wrId") + " " + failed.getString("status"));
        assertTrue(FlightRecorder.getFlightRecorder().getEventTypes().stream().anyMatch(type -> type.getName().equals("highwire.Traffic")));
    }

    @Test
    void theEndOfAnEngineAndTheNextOneAreRecorded() throws Exception {
        Path file = Files.createTempFile("highwire-watching-", ".jfr");
        try (Recording recording = new Recording(); Engine first = Engine.start()) {
            recording.start();
            Context context = first.context();
            first.process.destroyForcibly().waitFor();
            Engine.until("its end", () -> !context.valid());
            context.close();
            recording.stop();
            recording.dump(file);
        }
        List<RecordedEvent> events = RecordingFile.readAllEvents(file);
        Files.delete(file);
        assertTrue(named(events, "ContextEnd").getFirst().getString("reason").contains("engine has ended"));
    }
}

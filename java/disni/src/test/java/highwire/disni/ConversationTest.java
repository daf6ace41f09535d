package highwire.disni;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Programs as they were written for DiSNI. */
@Timeout(120)
final class ConversationTest {
    @Test
    void aClientReadsFromAnotherJvmAndSendsWhatItHasRead() throws Exception {
        try (Engine engine = Engine.start().use();
                Child server = new Child(engine)) {
            converse(server);
        }
    }

    @Test
    void theSameBetweenTwoDevices() throws Exception {
        try (Engine engine = Engine.start().use();
                Engine other = engine.startBeside();
                Child server = new Child(other)) {
            converse(server);
        }
    }

    private static void converse(Child server) throws Exception {
        String read = Conversation.read(new InetSocketAddress(InetAddress.getLoopbackAddress(), server.port()));
        assertEquals(Conversation.TEXT, read);
        assertEquals(Conversation.TEXT, server.said.readLine());
        assertEquals(0, server.process.onExit().get(60, TimeUnit.SECONDS).exitValue());
    }

    @Test
    void bothEndsMayBeInOneJvm() throws Exception {
        try (Engine engine = Engine.start()) {
            engine.use();
            CompletableFuture<InetSocketAddress> bound = new CompletableFuture<>();
            CompletableFuture<String> served = CompletableFuture.supplyAsync(() -> {
                try {
                    return Conversation.serve(InetAddress.getLoopbackAddress(), bound::complete);
                } catch (Exception e) {
                    bound.completeExceptionally(e);
                    throw new IllegalStateException(e);
                }
            });
            assertEquals(Conversation.TEXT, Conversation.read(bound.get(60, TimeUnit.SECONDS)));
            assertEquals(Conversation.TEXT, served.get(60, TimeUnit.SECONDS));
        }
    }
}

package org.apache.zookeeper.server;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.zookeeper.Engine;
import highwire.zookeeper.Hub;
import java.net.InetSocketAddress;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A server that ends while its hub's thread still works. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ShutdownTest {
    private static final long PATIENCE_MS = TimeUnit.SECONDS.toMillis(60);

    @Test
    void aShutdownWaitsForAHubThatClosesALinkMeanwhile() throws Exception {
        try (Engine engine = Engine.start()) {
            HighwireServerCnxnFactory factory = new HighwireServerCnxnFactory();
            factory.configure(new InetSocketAddress("127.0.0.1", 0), 10, -1, false);
            CompletableFuture<Thread> ending = new CompletableFuture<>();
            CountDownLatch isDone = new CountDownLatch(1);
            factory.hub().call(new Hub.Owner() {
                @Override
                public void proceed() {
                    // The shutdown waits for this thread, and only then a link's close asks for engine work.
                    awaitThatItWaits(ending.join());
                    factory.engineWork(isDone::countDown);
                }

                @Override
                public void received(long wrId, int length) {}

                @Override
                public void broken(String reason) {}

                @Override
                public boolean takeMail() {
                    return false;
                }
            });
            Thread shutdown = Thread.ofPlatform().daemon().start(factory::shutdown);
            ending.complete(shutdown);
            shutdown.join(PATIENCE_MS);
            assertFalse(shutdown.isAlive(), "the shutdown and the hub's thread wait for each other");
            assertTrue(isDone.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the work was done");
        }
    }

    private static void awaitThatItWaits(Thread thread) {
        try {
            while (thread.getState() != Thread.State.WAITING && thread.isAlive()) {
                Thread.sleep(1);
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}

package highwire.disni;

import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_WRITE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.ibm.disni.RdmaCqProvider;
import com.ibm.disni.verbs.IbvCompChannel;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvSendWR;
import java.io.IOException;
import java.util.LinkedList;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The thread that tells endpoints of their completions arms their queues before it sleeps, and looks once more: a completion that came after it had looked at a
 * queue and before it armed that queue brings no event.
 */
@Timeout(120)
final class LastLookTest {
    private Engine engine;

    @BeforeEach
    void start() throws IOException {
        engine = Engine.start().use();
    }

    @AfterEach
    void end() throws IOException {
        engine.close();
    }

    private static void write(Pair.End from, IbvMr to, long id) throws IOException {
        LinkedList<IbvSendWR> write = Conversation.request(IBV_WR_RDMA_WRITE, id, from.region);
        write.get(0).getRdma().setRemote_addr(to.getAddr());
        write.get(0).getRdma().setRkey(to.getRkey());
        from.postSend(write).execute();
    }

    private static void take(Semaphore from) throws InterruptedException {
        assertTrue(from.tryAcquire(60, TimeUnit.SECONDS), "the thread tells");
    }

    @Test
    void whatComesBetweenTheLookAndTheArmingIsTold() throws Exception {
        // Whatever this thread does not see before it sleeps it never sees.
        try (Pair pair = new Pair(-1, false)) {
            // The thread looks at the client's queue first, as that one was made first.
            Pair.End first = pair.client;
            Pair.End second = pair.served;
            Semaphore told = new Semaphore(0);
            Semaphore goOn = new Semaphore(0);
            AtomicReference<Thread> teller = new AtomicReference<>();
            second.whenTold = () -> {
                teller.set(Thread.currentThread());
                told.release();
                goOn.acquireUninterruptibly();
            };
            write(second, first.region, 1);
            take(told);
            // Both queues bring an event at most once before they are armed again, and these events are taken away.
            write(first, second.region, 2);
            write(second, first.region, 3);
            IbvCompChannel channel = first.getCqProvider().getCQ().getChannel();
            while (channel.getCqEvent(null, 0)) {
                // Until there is none.
            }
            goOn.release();
            take(told);
            assertEquals(2, first.next().getWr_id());
            RdmaCqProvider last = second.getCqProvider();
            synchronized (last) {
                goOn.release();
                // It has found nothing in the client's queue, and is about to look at the other.
                while (teller.get().getState() != Thread.State.BLOCKED) {
                    assertFalse(Thread.interrupted(), "the thread looks at the other queue");
                    Thread.onSpinWait();
                }
                write(first, second.region, 4);
            }
            assertEquals(4, first.next().getWr_id());
            assertEquals(1, second.next().getWr_id());
            assertEquals(3, second.next().getWr_id());
        }
    }
}

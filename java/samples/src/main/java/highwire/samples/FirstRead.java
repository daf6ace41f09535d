package highwire.samples;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import java.lang.foreign.MemorySegment;

/** Reads a peer's memory while the peer does nothing. Both ends are here, each with a queue pair of its own. */
public final class FirstRead {
    private FirstRead() {}

    /**
     * Runs it.
     *
     * @param args none
     * @throws Exception the reason why it does not work here
     */
    public static void main(String[] args) throws Exception {
        try (Context context = Context.open();
                ProtectionDomain pd = context.protectionDomain();
                RdmaArena arena = context.arena(1 << 16);
                CompletionQueue cq = context.completionQueue(16);
                QueuePair mine = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                QueuePair peers = pd.queuePair(QueuePairConfig.of(Service.RC, cq))) {
            MemorySegment text = arena.allocateFrom("hello from memory that nobody sent");
            try (MemoryRegion source = pd.register(text, Access.REMOTE_READ);
                    MemoryRegion target = pd.register(arena.allocate(64), Access.LOCAL_WRITE)) {
                // Two programs would exchange endpoint, address and key, over any connection.
                mine.connect(peers.endpoint(), ConnectOptions.DEFAULT);
                peers.connect(mine.endpoint(), ConnectOptions.DEFAULT);
                PostSend read = mine.postSend(new SendRequest(Opcode.READ)
                        .remote(source.address(), source.rkey())
                        .sge(target, 0, (int) source.length()));
                read.exec();
                Completion completion = new Completion();
                while (!cq.poll(completion)) {
                    Thread.onSpinWait();
                }
                System.out.println(completion.status() + ": " + target.segment().getString(0));
            }
        }
    }
}

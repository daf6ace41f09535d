package highwire.verbs;

import java.lang.foreign.ValueLayout;

/** A program that opens a context where no engine may serve, executes one READ, says which engine that was, and stays until its input ends. */
final class ColdStart {
    private ColdStart() {}

    public static void main(String[] args) throws Exception {
        try (Context context = Context.open();
                ProtectionDomain pd = context.protectionDomain();
                RdmaArena arena = context.arena(1 << 12);
                CompletionQueue cq = context.completionQueue(4);
                QueuePair mine = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                QueuePair peers = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                MemoryRegion memory = pd.register(arena.allocate(64), Access.REMOTE_READ | Access.LOCAL_WRITE)) {
            memory.segment().set(ValueLayout.JAVA_LONG, 0, 42);
            mine.connect(peers.endpoint(), ConnectOptions.DEFAULT);
            peers.connect(mine.endpoint(), ConnectOptions.DEFAULT);
            mine.postSend(new SendRequest(Opcode.READ).remote(memory.address(), memory.rkey()).sge(memory, 32, 8)).exec();
            Completion completion = new Completion();
            while (!cq.poll(completion)) {
                Thread.onSpinWait();
            }
            System.out.println(completion.status() + " " + memory.segment().get(ValueLayout.JAVA_LONG, 32) + " " + context.enginePid + " " + context.door());
            while (System.in.read() >= 0) {
                // Each byte asks for another engine than the one that has ended.
                try (Context again = context.reopen()) {
                    System.out.println("again 0 " + again.enginePid + " " + again.door());
                }
            }
        }
    }
}

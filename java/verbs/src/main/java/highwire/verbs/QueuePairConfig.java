package highwire.verbs;

/**
 * The configuration of a queue pair.
 *
 * @param service the transport service
 * @param sendCq the completion queue of sends
 * @param recvCq the completion queue of receives
 * @param srq the shared receive queue; null for a queue of its own
 * @param maxSendWr send requests that it holds
 * @param maxRecvWr receives that it holds
 * @param maxSendSge pieces of one send request, at most 16
 * @param maxRecvSge pieces of one receive, at most 16
 * @param maxInline bytes of inline data of one request, at most 256
 */
public record QueuePairConfig(
        Service service,
        CompletionQueue sendCq,
        CompletionQueue recvCq,
        SharedReceiveQueue srq,
        int maxSendWr,
        int maxRecvWr,
        int maxSendSge,
        int maxRecvSge,
        int maxInline) {
    /**
     * A queue pair of default sizes that completes everything into one queue.
     *
     * @param service the transport service
     * @param cq the queue
     * @return the configuration
     */
    public static QueuePairConfig of(Service service, CompletionQueue cq) {
        return new QueuePairConfig(service, cq, cq, null, 128, 128, 4, 3, 64);
    }

    /**
     * The same with a shared receive queue.
     *
     * @param queue the shared receive queue
     * @return the configuration
     */
    public QueuePairConfig withSrq(SharedReceiveQueue queue) {
        return new QueuePairConfig(
                service, sendCq, recvCq, queue, maxSendWr, maxRecvWr, maxSendSge, maxRecvSge, maxInline);
    }

    /**
     * The same with queues of these lengths.
     *
     * @param sends send requests
     * @param receives receives
     * @return the configuration
     */
    public QueuePairConfig withDepth(int sends, int receives) {
        return new QueuePairConfig(service, sendCq, recvCq, srq, sends, receives, maxSendSge, maxRecvSge, maxInline);
    }

    /**
     * The same with requests of up to this many pieces and this much inline data.
     *
     * @param sges pieces of a send request and of a receive
     * @param inline bytes
     * @return the configuration
     */
    public QueuePairConfig withSges(int sges, int inline) {
        return new QueuePairConfig(service, sendCq, recvCq, srq, maxSendWr, maxRecvWr, sges, sges, inline);
    }
}

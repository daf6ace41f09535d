package highwire.verbs;

/**
 * What a context has done since it was opened, its closed objects included. The numbers only grow, but for those of open objects. They are read without
 * stopping anything, so they may belong to slightly different moments.
 *
 * @param queuePairs queue pairs that are open now
 * @param completionQueues completion queues that are open now
 * @param executed requests that posting threads executed themselves
 * @param posted requests that were left to the engine
 * @param completions completions that were polled
 * @param failures completions among them whose status is not success
 */
public record ContextMetrics(long queuePairs, long completionQueues, long executed, long posted, long completions, long failures) {}

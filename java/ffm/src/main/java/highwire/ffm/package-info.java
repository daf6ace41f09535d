/**
 * The verbs of cards, and of the kernel's software RNIC, by calls into the system's {@code libibverbs.so.1}.
 *
 * <p>The second driver beside {@code highwire.verbs}, whose names it shares. That one maps the queues of an engine and calls nothing; this one calls what every program in C calls, so
 * it needs native access, and registers any memory beside the heap.
 */
package highwire.ffm;

package highwire.benchmarks.echo;

/** How an end notices a message. */
enum Waits {
    /** It polls without pause, at the cost of a core. */
    POLLING,
    /** It sleeps in the kernel. */
    BLOCKING
}

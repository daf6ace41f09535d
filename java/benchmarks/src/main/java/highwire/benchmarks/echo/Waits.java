package highwire.benchmarks.echo;

/** How an end learns that something has come. */
enum Waits {
    /** It looks without pause, for a core. */
    POLLING,
    /** It sleeps in the kernel. */
    BLOCKING
}

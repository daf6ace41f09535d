package highwire.rpc;

/** How both ends learn that something has come. */
public enum RpcMode {
    /** They look at their memory without pause: the shortest way, for a core each. */
    POLLING,
    /** They sleep, and four bytes of immediate data wake them. */
    BLOCKING
}

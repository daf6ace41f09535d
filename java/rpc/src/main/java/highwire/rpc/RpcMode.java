package highwire.rpc;

/** How both ends notice a message. */
public enum RpcMode {
    /** They poll their memory without pause: the shortest way, for a core each. */
    POLLING,
    /** They sleep, and four bytes of immediate data wake them. */
    BLOCKING
}

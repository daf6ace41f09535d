/** jvRPC: calls over the verbs, marshalled off-heap. */
module highwire.rpc {
    requires transitive highwire.verbs;

    exports highwire.rpc;
}

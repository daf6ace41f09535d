/** A memcached whose Java client GETs by READ. */
module highwire.memcached {
    requires transitive highwire.verbs;
    requires highwire.rpc;

    exports highwire.memcached;
}

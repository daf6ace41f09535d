/** The verbs in Java over mapped queues. Needs no native access. */
module highwire.verbs {
    requires highwire.engine;
    requires jdk.jfr;

    exports highwire.verbs;
}

/** The verbs in Java over mapped queues. Needs no native access. */
module highwire.verbs {
    exports highwire.verbs;
}

/** DiSNI's API over Highwire's verbs. Needs no native access. */
module highwire.disni {
    requires transitive highwire.verbs;

    exports com.ibm.disni;
    exports com.ibm.disni.util;
    exports com.ibm.disni.verbs;
}

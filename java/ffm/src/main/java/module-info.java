/** The verbs of cards through the system's libibverbs. Needs {@code --enable-native-access=highwire.ffm}. */
module highwire.ffm {
    requires transitive highwire.verbs;

    exports highwire.ffm;
}

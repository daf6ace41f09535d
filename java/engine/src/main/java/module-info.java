/** The engine's program for each platform, and how a JVM starts it. */
module highwire.engine {
    exports highwire.engine;
}

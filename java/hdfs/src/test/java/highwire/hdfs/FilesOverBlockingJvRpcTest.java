package highwire.hdfs;

/** Calls over jvRPC, for which both ends sleep. */
class FilesOverBlockingJvRpcTest extends FilesContract {
    FilesOverBlockingJvRpcTest() {
        super(true, "blocking");
    }
}

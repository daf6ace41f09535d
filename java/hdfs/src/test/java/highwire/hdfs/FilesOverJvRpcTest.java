package highwire.hdfs;

/** Calls over jvRPC, polled. */
class FilesOverJvRpcTest extends FilesContract {
    FilesOverJvRpcTest() {
        super(true, "polling");
    }
}

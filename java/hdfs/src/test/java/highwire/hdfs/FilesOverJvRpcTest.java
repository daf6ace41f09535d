package highwire.hdfs;

/** Calls over jvRPC. */
class FilesOverJvRpcTest extends FilesContract {
    FilesOverJvRpcTest() {
        super(true);
    }
}

package highwire.hdfs;

/** The same over TCP, at the same server. */
class FilesOverTcpTest extends FilesContract {
    FilesOverTcpTest() {
        super(false, "polling");
    }
}

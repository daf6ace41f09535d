package highwire.zookeeper;

/** TCP clients of Highwire's factory. */
class SessionsOverTcpTest extends Sessions {
    SessionsOverTcpTest() {
        super(Server.TCP);
    }
}

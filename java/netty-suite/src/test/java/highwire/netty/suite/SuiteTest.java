package highwire.netty.suite;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapComboFactory;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapFactory;
import io.netty.testsuite.transport.socket.CompositeBufferGatheringWriteTest;
import io.netty.testsuite.transport.socket.ServerSocketSuspendTest;
import io.netty.testsuite.transport.socket.SocketAutoReadTest;
import io.netty.testsuite.transport.socket.SocketBufReleaseTest;
import io.netty.testsuite.transport.socket.SocketCancelWriteTest;
import io.netty.testsuite.transport.socket.SocketChannelNotYetConnectedTest;
import io.netty.testsuite.transport.socket.SocketCloseForciblyTest;
import io.netty.testsuite.transport.socket.SocketConditionalWritabilityTest;
import io.netty.testsuite.transport.socket.SocketConnectTest;
import io.netty.testsuite.transport.socket.SocketConnectionAttemptTest;
import io.netty.testsuite.transport.socket.SocketDataReadInitialStateTest;
import io.netty.testsuite.transport.socket.SocketEchoTest;
import io.netty.testsuite.transport.socket.SocketExceptionHandlingTest;
import io.netty.testsuite.transport.socket.SocketFileRegionTest;
import io.netty.testsuite.transport.socket.SocketFixedLengthEchoTest;
import io.netty.testsuite.transport.socket.SocketGatheringWriteTest;
import io.netty.testsuite.transport.socket.SocketHalfClosedTest;
import io.netty.testsuite.transport.socket.SocketMultipleConnectTest;
import io.netty.testsuite.transport.socket.SocketObjectEchoTest;
import io.netty.testsuite.transport.socket.SocketReadPendingTest;
import io.netty.testsuite.transport.socket.SocketRstTest;
import io.netty.testsuite.transport.socket.SocketShutdownOutputByPeerTest;
import io.netty.testsuite.transport.socket.SocketShutdownOutputBySelfTest;
import io.netty.testsuite.transport.socket.SocketSpdyEchoTest;
import io.netty.testsuite.transport.socket.SocketSslClientRenegotiateTest;
import io.netty.testsuite.transport.socket.SocketSslEchoTest;
import io.netty.testsuite.transport.socket.SocketSslGreetingTest;
import io.netty.testsuite.transport.socket.SocketSslSessionReuseTest;
import io.netty.testsuite.transport.socket.SocketStartTlsTest;
import io.netty.testsuite.transport.socket.SocketStringEchoTest;
import io.netty.testsuite.transport.socket.WriteBeforeRegisteredTest;
import java.util.List;
import org.junit.jupiter.api.Nested;

/** Netty's tests of a socket transport, each with the channels of {@link Transports}. Those about datagrams, and about files and credentials of Unix sockets, do not apply;
 * that of traffic shaping asserts times. */
class SuiteTest {
    @Nested
    class SocketFileRegion extends SocketFileRegionTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketConnect extends SocketConnectTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketGatheringWrite extends SocketGatheringWriteTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketBufRelease extends SocketBufReleaseTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketHalfClosed extends SocketHalfClosedTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketConditionalWritability extends SocketConditionalWritabilityTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketFixedLengthEcho extends SocketFixedLengthEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketStringEcho extends SocketStringEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketSslGreeting extends SocketSslGreetingTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketSslSessionReuse extends SocketSslSessionReuseTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketMultipleConnect extends SocketMultipleConnectTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketCloseForcibly extends SocketCloseForciblyTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketSslEcho extends SocketSslEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketObjectEcho extends SocketObjectEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketSpdyEcho extends SocketSpdyEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketStartTls extends SocketStartTlsTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketAutoRead extends SocketAutoReadTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketDataReadInitialState extends SocketDataReadInitialStateTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketEcho extends SocketEchoTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketCancelWrite extends SocketCancelWriteTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketSslClientRenegotiate extends SocketSslClientRenegotiateTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketRst extends SocketRstTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class CompositeBufferGatheringWrite extends CompositeBufferGatheringWriteTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketExceptionHandling extends SocketExceptionHandlingTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketReadPending extends SocketReadPendingTest {
        @Override
        protected List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> newFactories() {
            return Transports.combos();
        }
    }

    @Nested
    class SocketShutdownOutputBySelf extends SocketShutdownOutputBySelfTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return Transports.clients();
        }
    }

    @Nested
    class SocketConnectionAttempt extends SocketConnectionAttemptTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return Transports.clients();
        }
    }

    @Nested
    class SocketChannelNotYetConnected extends SocketChannelNotYetConnectedTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return Transports.clients();
        }
    }

    @Nested
    class WriteBeforeRegistered extends WriteBeforeRegisteredTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return Transports.clients();
        }
    }

    @Nested
    class ServerSocketSuspend extends ServerSocketSuspendTest {
        @Override
        protected List<BootstrapFactory<ServerBootstrap>> newFactories() {
            return Transports.servers();
        }
    }

    @Nested
    class SocketShutdownOutputByPeer extends SocketShutdownOutputByPeerTest {
        @Override
        protected List<BootstrapFactory<ServerBootstrap>> newFactories() {
            return Transports.servers();
        }
    }
}

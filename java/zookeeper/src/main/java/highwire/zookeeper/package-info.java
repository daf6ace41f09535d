/**
 * Messages of ZooKeeper over queue pairs: the parts that its client and its server share.
 *
 * <p>The two classes that ZooKeeper's properties name are
 * {@code org.apache.zookeeper.ClientCnxnSocketHighwire} and
 * {@code org.apache.zookeeper.server.HighwireServerCnxnFactory}; they lie in ZooKeeper's packages because their
 * superclasses are visible only there.
 */
package highwire.zookeeper;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import javax.cache.CacheException;

import org.apache.ignite.Ignite;
import org.apache.ignite.IgniteCache;
import org.apache.ignite.IgniteDataStreamer;
import org.apache.ignite.IgniteException;
import org.apache.ignite.Ignition;
import org.apache.ignite.cache.CacheAtomicityMode;
import org.apache.ignite.cache.CacheMode;
import org.apache.ignite.cache.CacheWriteSynchronizationMode;
import org.apache.ignite.configuration.CacheConfiguration;
import org.apache.ignite.configuration.IgniteConfiguration;
import org.apache.ignite.spi.communication.tcp.TcpCommunicationSpi;
import org.apache.ignite.spi.discovery.tcp.TcpDiscoverySpi;
import org.apache.ignite.spi.discovery.tcp.ipfinder.vm.TcpDiscoveryVmIpFinder;
import org.apache.ignite.transactions.Transaction;
import org.apache.ignite.transactions.TransactionConcurrency;
import org.apache.ignite.transactions.TransactionIsolation;
import org.apache.ignite.transactions.TransactionOptimisticException;

/**
 * A node of Apache Ignite with a door for the clients of the comparison. Rows are arrays of bytes in caches that are TRANSACTIONAL, with two backups and FULL_SYNC; transactions
 * are OPTIMISTIC and SERIALIZABLE.
 *
 * <p>A client's connection has a thread, and one transaction at a time: requests read keys in it, and the last one commits it or gives it up. Numbers are big-endian.
 *
 * <p>{@code java Node.java cluster PORT} starts three nodes as processes and ends with them; PORT is the first of nine in a row: three doors, three for discovery and three for
 * messages. {@code java Node.java node PORT NUMBER} is one of them.
 */
public final class Node {
    private static final int NODES = 3;
    private static final int BACKUPS = 2;
    /** A request reads keys outside of any transaction. */
    private static final int READ = 1;
    /** A request reads keys; the first one begins a transaction. */
    private static final int EXECUTE = 2;
    /** A request writes rows and commits. */
    private static final int COMMIT = 3;
    /** A request gives the transaction up. */
    private static final int ABORT = 4;
    /** A request writes rows outside of any transaction. */
    private static final int FILL = 5;

    private static final int DONE = 0;
    private static final int CONFLICT = 1;

    private final Ignite ignite;
    private final Map<Integer, IgniteCache<Long, byte[]>> caches = new HashMap<>();

    private Node(Ignite ignite) {
        this.ignite = ignite;
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("cluster")) {
            cluster(port);
        } else {
            serve(port, Integer.parseInt(arguments[2]));
        }
    }

    /** Starts the nodes as this process was started, and ends them with it. */
    private static void cluster(int port) throws Exception {
        ProcessHandle.Info info = ProcessHandle.current().info();
        List<String> command = new ArrayList<>(List.of(info.command().orElseThrow()));
        command.addAll(List.of(info.arguments().orElseThrow()));
        int word = command.lastIndexOf("cluster");
        List<Process> nodes = new ArrayList<>();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> nodes.forEach(Process::destroyForcibly)));
        for (int number = 0; number < NODES; number++) {
            List<String> one = new ArrayList<>(command.subList(0, word));
            one.addAll(List.of("node", Integer.toString(port), Integer.toString(number)));
            nodes.add(new ProcessBuilder(one).inheritIO().start());
        }
        for (Process node : nodes) {
            node.waitFor();
        }
    }

    private static void serve(int port, int number) throws IOException {
        List<String> places = new ArrayList<>();
        for (int node = 0; node < NODES; node++) {
            places.add("127.0.0.1:" + (port + NODES + node));
        }
        IgniteConfiguration configuration = new IgniteConfiguration()
                .setIgniteInstanceName("node-" + number)
                .setLocalHost("127.0.0.1")
                .setWorkDirectory(System.getProperty("java.io.tmpdir"))
                .setDiscoverySpi(new TcpDiscoverySpi()
                        .setLocalPort(port + NODES + number)
                        .setLocalPortRange(0)
                        .setIpFinder(new TcpDiscoveryVmIpFinder().setAddresses(places)))
                .setCommunicationSpi(new TcpCommunicationSpi()
                        .setLocalPort(port + 2 * NODES + number)
                        .setLocalPortRange(0));
        Node node = new Node(Ignition.start(configuration));
        while (node.ignite.cluster().nodes().size() < NODES) {
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        try (ServerSocket door = new ServerSocket(port + number, 64, InetAddress.getByName("127.0.0.1"))) {
            while (true) {
                Socket client = door.accept();
                Thread thread = new Thread(() -> node.converse(client));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private synchronized IgniteCache<Long, byte[]> cache(int table) {
        return caches.computeIfAbsent(table, number -> ignite.getOrCreateCache(
                new CacheConfiguration<Long, byte[]>("table-" + number)
                        .setCacheMode(CacheMode.PARTITIONED)
                        .setBackups(BACKUPS)
                        .setAtomicityMode(CacheAtomicityMode.TRANSACTIONAL)
                        .setWriteSynchronizationMode(CacheWriteSynchronizationMode.FULL_SYNC)));
    }

    /** A key of a table, in the order in which a request names it. */
    private record Place(int table, long key) {
        static Place read(DataInputStream in) throws IOException {
            return new Place(in.readUnsignedByte(), in.readLong());
        }
    }

    private void converse(Socket client) {
        Transaction transaction = null;
        try (client;
                DataInputStream in = new DataInputStream(new BufferedInputStream(client.getInputStream()));
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(client.getOutputStream()))) {
            client.setTcpNoDelay(true);
            while (true) {
                int request = in.readUnsignedByte();
                try {
                    switch (request) {
                        case READ -> answer(out, rows(places(in)));
                        case EXECUTE -> {
                            List<Place> places = places(in);
                            if (transaction == null) {
                                transaction = ignite.transactions().txStart(
                                        TransactionConcurrency.OPTIMISTIC, TransactionIsolation.SERIALIZABLE);
                            }
                            answer(out, rows(places));
                        }
                        case COMMIT -> {
                            write(in);
                            Transaction ending = transaction;
                            transaction = null;
                            try (ending) {
                                ending.commit();
                            }
                            out.writeByte(DONE);
                        }
                        case ABORT -> {
                            close(transaction);
                            transaction = null;
                            out.writeByte(DONE);
                        }
                        case FILL -> {
                            fill(in);
                            out.writeByte(DONE);
                        }
                        default -> throw new IOException("request " + request);
                    }
                } catch (IgniteException | CacheException error) {
                    close(transaction);
                    transaction = null;
                    if (!isConflict(error)) {
                        throw error;
                    }
                    out.writeByte(CONFLICT);
                }
                out.flush();
            }
        } catch (EOFException error) {
            // The client has gone.
        } catch (IOException | RuntimeException error) {
            error.printStackTrace();
        } finally {
            close(transaction);
        }
    }

    private static void close(Transaction transaction) {
        if (transaction != null) {
            transaction.close();
        }
    }

    private static boolean isConflict(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof TransactionOptimisticException) {
                return true;
            }
        }
        return false;
    }

    private static List<Place> places(DataInputStream in) throws IOException {
        int count = in.readUnsignedShort();
        List<Place> places = new ArrayList<>(count);
        for (int index = 0; index < count; index++) {
            places.add(Place.read(in));
        }
        return places;
    }

    /** The rows at some places, each table's in one call. */
    private List<byte[]> rows(List<Place> places) {
        if (places.size() == 1) {
            byte[] row = cache(places.get(0).table()).get(places.get(0).key());
            List<byte[]> rows = new ArrayList<>();
            rows.add(row);
            return rows;
        }
        Map<Integer, TreeSet<Long>> wanted = new TreeMap<>();
        for (Place place : places) {
            wanted.computeIfAbsent(place.table(), table -> new TreeSet<>()).add(place.key());
        }
        Map<Place, byte[]> found = new HashMap<>();
        wanted.forEach((table, keys) ->
                cache(table).getAll(keys).forEach((key, row) -> found.put(new Place(table, key), row)));
        List<byte[]> rows = new ArrayList<>(places.size());
        for (Place place : places) {
            rows.add(found.get(place));
        }
        return rows;
    }

    private static void answer(DataOutputStream out, List<byte[]> rows) throws IOException {
        out.writeByte(DONE);
        for (byte[] row : rows) {
            out.writeInt(row == null ? -1 : row.length);
            if (row != null) {
                out.write(row);
            }
        }
    }

    /** A row of a request. A key that is to be removed has none. */
    private record Row(Place place, byte[] bytes) {
        static Row read(DataInputStream in) throws IOException {
            Place place = Place.read(in);
            int length = in.readInt();
            return new Row(place, length < 0 ? null : in.readNBytes(length));
        }
    }

    /** Writes rows and removes keys, each table's in one call. */
    private void write(DataInputStream in) throws IOException {
        int count = in.readUnsignedShort();
        Map<Integer, TreeMap<Long, byte[]>> rows = new TreeMap<>();
        Map<Integer, TreeSet<Long>> gone = new TreeMap<>();
        for (int index = 0; index < count; index++) {
            Row row = Row.read(in);
            Place place = row.place();
            if (row.bytes() == null) {
                gone.computeIfAbsent(place.table(), table -> new TreeSet<>()).add(place.key());
            } else {
                rows.computeIfAbsent(place.table(), table -> new TreeMap<>()).put(place.key(), row.bytes());
            }
        }
        rows.forEach((table, some) -> cache(table).putAll(some));
        gone.forEach((table, keys) -> cache(table).removeAll(keys));
    }

    /** Writes rows of tables that nobody else uses yet. */
    private void fill(DataInputStream in) throws IOException {
        int count = in.readUnsignedShort();
        Map<Integer, IgniteDataStreamer<Long, byte[]>> streamers = new HashMap<>();
        for (int index = 0; index < count; index++) {
            Row row = Row.read(in);
            streamers.computeIfAbsent(row.place().table(), table -> ignite.dataStreamer(cache(table).getName()))
                    .addData(row.place().key(), row.bytes());
        }
        streamers.values().forEach(IgniteDataStreamer::close);
    }
}

package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** What a process holds: mappings of the registry, descriptors, files of the registry, bytes beside the heap. */
record Held(long maps, long descriptors, long engineMaps, long engineDescriptors, long files, long directBytes, long mappedBytes) {
    static Held now(Engine engine) throws IOException {
        String of = engine.process.pid() + "";
        return new Held(maps("self", engine), count(Path.of("/proc/self/fd")), maps(of, engine), count(Path.of("/proc", of, "fd")),
                engine.files(), pool("direct"), pool("mapped"));
    }

    private static long maps(String process, Engine engine) throws IOException {
        try (Stream<String> lines = Files.lines(Path.of("/proc", process, "maps"))) {
            return lines.filter(line -> line.contains(engine.folder.toString())).count();
        }
    }

    private static long count(Path folder) throws IOException {
        try (Stream<Path> entries = Files.list(folder)) {
            return entries.count();
        }
    }

    private static long pool(String name) {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream().filter(pool -> pool.getName().equals(name))
                .mapToLong(BufferPoolMXBean::getMemoryUsed).sum();
    }

    /** Nothing has grown, or only by what does not depend on how often something was done. */
    void assertNoMoreThan(Held before, long some) {
        String both = before + " became " + this;
        assertTrue(maps <= before.maps + some && engineMaps <= before.engineMaps + some, both);
        assertTrue(descriptors <= before.descriptors + some && engineDescriptors <= before.engineDescriptors + some, both);
        assertTrue(files <= before.files + some, both);
        assertTrue(directBytes <= before.directBytes + (some << 16) && mappedBytes <= before.mappedBytes + (some << 16), both);
    }
}

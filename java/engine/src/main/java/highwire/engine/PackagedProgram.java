package highwire.engine;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URL;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;

/** The engine's program as this artifact carries it, for one platform. */
final class PackagedProgram {
    private static final String FOLDER = "META-INF/highwire/";
    private static final String NAME = "highwire";
    /** What this artifact may carry, for the message where it does not. */
    private static final List<String> PLATFORMS = List.of("linux-x86_64", "linux-aarch64");

    private final URL resource;

    PackagedProgram(URL resource) {
        this.resource = resource;
    }

    static PackagedProgram ofThisPlatform() throws IOException {
        return of(platform(System.getProperty("os.name", "?"), System.getProperty("os.arch", "?")));
    }

    static PackagedProgram of(String platform) throws IOException {
        URL found = find(platform);
        if (found == null) {
            List<String> carried = PLATFORMS.stream().filter(candidate -> find(candidate) != null).toList();
            throw new IOException("highwire-engine carries no program for " + platform + ", only for " + carried
                    + ": build `highwire` there and run `highwire serve`, or name the program by -D" + EngineStarter.ENGINE_PROPERTY + "=/path/to/highwire");
        }
        return new PackagedProgram(found);
    }

    private static URL find(String platform) {
        return PackagedProgram.class.getResource("/" + FOLDER + platform + "/" + NAME);
    }

    /** As the programs' folders are named. */
    static String platform(String system, String processor) {
        String name = switch (processor) {
            case "amd64" -> "x86_64";
            case "arm64" -> "aarch64";
            default -> processor;
        };
        return system.toLowerCase(Locale.ROOT).replace(' ', '-') + "-" + name;
    }

    /**
     * The program as a file that can be executed. One that is there already is used if all its bytes are right; any number of programs may do this at the
     * same time.
     */
    Path unpack(ProgramCache cache) throws IOException {
        String hash = hash(resource.openStream());
        Path folder = cache.folderOf(hash.substring(0, 32));
        Path program = folder.resolve(NAME);
        if (Files.isExecutable(program) && isWhole(program, hash)) {
            return program;
        }
        Path part = null;
        try {
            // It gets its mode now, because a file that has its name already may be executed by another program.
            part = Files.createTempFile(folder, ProgramCache.PART, ".tmp",
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
            try (InputStream from = resource.openStream(); OutputStream to = Files.newOutputStream(part)) {
                from.transferTo(to);
            }
            if (!isWhole(part, hash)) {
                throw new ProgramCache.UnusableException("what was written to " + part + " is not what was read from there");
            }
            Files.move(part, program, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            part = null;
            return program;
        } catch (ClosedByInterruptException e) {
            throw EngineStarter.interrupted();
        } catch (IOException e) {
            throw ProgramCache.UnusableException.of(folder, e);
        } finally {
            if (part != null) {
                Files.deleteIfExists(part);
            }
        }
    }

    private static boolean isWhole(Path program, String hash) {
        try {
            return hash(Files.newInputStream(program)).equals(hash);
        } catch (IOException e) {
            // It is written anew, and that says what is wrong.
            return false;
        }
    }

    private static String hash(InputStream bytes) throws IOException {
        try (bytes) {
            MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
            new DigestInputStream(new BufferedInputStream(bytes, 1 << 16), sha256).transferTo(OutputStream.nullOutputStream());
            return HexFormat.of().formatHex(sha256.digest());
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every Java has SHA-256", e);
        }
    }
}

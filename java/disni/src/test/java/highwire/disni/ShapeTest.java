package highwire.disni;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.spi.ToolProvider;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** DiSNI 2.1 as Maven Central has it, beside this module. */
final class ShapeTest {
    /** This file lists, one a line, the parts of DiSNI that are missing here. */
    private static final String ABSENT = "absent.txt";

    private static final Path THEIRS = Path.of(System.getProperty("highwire.theirs"));

    private static URLClassLoader theirs() throws IOException {
        URL[] jars = {jar("disni-2.1.jar").toUri().toURL(), jar("slf4j-api-1.7.12.jar").toUri().toURL()};
        return new URLClassLoader(jars, ClassLoader.getPlatformClassLoader());
    }

    private static Path jar(String name) {
        Path jar = THEIRS.resolve(name);
        assertTrue(Files.exists(jar), jar + " is there: the build copies it");
        return jar;
    }

    /** The parameters and the result by their names, as classes of two loaders are never equal. */
    private static String shape(Class<?> type, Executable member) {
        String parameters = Arrays.stream(member.getParameterTypes()).map(Class::getTypeName).collect(Collectors.joining(", "));
        return member instanceof Method method
                ? type.getName() + " " + (Modifier.isStatic(method.getModifiers()) ? "static " : "") + method.getReturnType().getTypeName() + " "
                        + method.getName() + "(" + parameters + ")"
                : type.getName() + " new(" + parameters + ")";
    }

    /** The members that a program can call, override or name. */
    private static Set<String> members(Class<?> type) {
        Set<String> shapes = new TreeSet<>();
        if (!type.isEnum()) {
            for (Executable constructor : type.getDeclaredConstructors()) {
                if (isVisible(constructor.getModifiers())) {
                    shapes.add(shape(type, constructor));
                }
            }
        }
        for (Method method : type.getDeclaredMethods()) {
            if (isVisible(method.getModifiers()) && !method.isSynthetic()) {
                shapes.add(shape(type, method));
            }
        }
        for (Field field : type.getFields()) {
            if (field.getDeclaringClass() == type) {
                shapes.add(type.getName() + " " + field.getType().getTypeName() + " " + field.getName());
            }
        }
        return shapes;
    }

    private static boolean isVisible(int modifiers) {
        return Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers);
    }

    private static List<String> theirClasses() throws IOException {
        try (JarFile jar = new JarFile(jar("disni-2.1.jar").toFile())) {
            return jar.stream()
                    .map(entry -> entry.getName())
                    .filter(name -> name.matches("com/ibm/disni/(verbs/|util/)?[^/]*[.]class"))
                    .map(name -> name.replace('/', '.').replace(".class", ""))
                    .sorted()
                    .toList();
        }
    }

    @Test
    void whatIsMissingOfDisniIsListedAndNothingElse() throws Exception {
        Set<String> missing = new TreeSet<>();
        int here = 0;
        try (URLClassLoader loader = theirs()) {
            for (String name : theirClasses()) {
                Class<?> their = loader.loadClass(name);
                if (!Modifier.isPublic(their.getModifiers())) {
                    continue;
                }
                Class<?> ours;
                try {
                    ours = Class.forName(name, false, getClass().getClassLoader());
                } catch (ClassNotFoundException e) {
                    missing.add(name);
                    continue;
                }
                Set<String> left = members(their);
                here += left.size();
                left.removeAll(members(ours));
                // Inherited members can be called as well.
                left.removeIf(shape -> Arrays.stream(ours.getMethods())
                        .anyMatch(method -> shape(ours, method).equals(shape)));
                here -= left.size();
                missing.addAll(left);
            }
        }
        List<String> listed = Files.readAllLines(Path.of(System.getProperty("highwire.sources")).resolve("highwire/disni").resolve(ABSENT));
        assertEquals(String.join("\n", listed), String.join("\n", missing));
        assertTrue(here > 200, "most of it is here: " + here);
    }

    @Test
    void theSameSourceCompilesAgainstDisni() throws IOException {
        ToolProvider compiler = ToolProvider.findFirst("javac").orElseThrow();
        Path source = Path.of(System.getProperty("highwire.sources"), "highwire/disni/Conversation.java");
        Path out = Files.createTempDirectory("highwire-disni-");
        try {
            int result = compiler.run(System.out, System.err, "-proc:none", "-d", out.toString(), "-cp", jar("disni-2.1.jar").toString(), source.toString());
            assertEquals(0, result);
            assertTrue(Files.exists(out.resolve("highwire/disni/Conversation.class")));
        } finally {
            try (Stream<Path> left = Files.walk(out)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }
}

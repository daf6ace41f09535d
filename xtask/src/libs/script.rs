//! The linker's input: the version script, and a C file for symbols that are not one function under one
//! version.

use super::table::{Behind, Symbol, Table};

/// Prefixes of the static library's symbols that are not in the table. Hiding everything else with `*` would
/// hide symbols without a version, too.
const HIDDEN: &[&str] =
    &["_ZN*", "_R*", "rust_*", "__rust*", "_rust*", "highwire_alias_*", "anon.*", "DW.ref.*"];

/// The version script with the nodes that `chosen` takes; `-` symbols belong to none.
pub(super) fn versions(table: &Table, chosen: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut before = String::new();
    for node in table.nodes().into_iter().filter(|node| chosen(node)) {
        text += &format!("{node} {{\n");
        let plain =
            |symbol: &&Symbol| symbol.node.as_deref() == Some(node) && symbol.behind == Behind::Itself;
        let names: Vec<&str> = table.symbols.iter().filter(plain).map(|s| s.name.as_str()).collect();
        if !names.is_empty() {
            text += &format!("  global: {};\n", names.join("; "));
        }
        if before.is_empty() {
            text += &format!("  local: {};\n", HIDDEN.join("; "));
        }
        // A family inherits, private nodes stand alone.
        let family = |node: &str| node.rsplit_once('_').map(|(family, _)| family.to_string());
        let is_heir =
            family(&before).is_some() && family(&before) == family(node) && !node.contains("PRIVATE");
        text += &if is_heir { format!("}} {before};\n") } else { "};\n".to_string() };
        before = node.to_string();
    }
    text
}

/// One small function per symbol that stands for another, under its version.
pub(super) fn aliases(table: &Table) -> String {
    let mut text = String::from("#include <errno.h>\n");
    for (index, Symbol { node, name, behind }) in table.symbols.iter().enumerate() {
        let Some(node) = node else { continue };
        let alias = format!("highwire_alias_{index}");
        text += &match behind {
            Behind::Itself => continue,
            Behind::Function(function) => format!(
                "extern long {function}(long, long, long, long, long, long);\n\
                 long {alias}(long a, long b, long c, long d, long e, long f)\n\
                 {{ return {function}(a, b, c, d, e, f); }}\n"
            ),
            Behind::Null => format!("void *{alias}(void) {{ errno = ENOSYS; return 0; }}\n"),
            Behind::Errno => format!("int {alias}(void) {{ return EOPNOTSUPP; }}\n"),
            Behind::Void => format!("long {alias}(void) {{ return 0; }}\n"),
            Behind::Data => format!("long {alias};\n"),
        };
        text += &format!("__asm__(\".symver {alias}, {name}@{node}\");\n");
    }
    text
}

/// The functions of the C library that `c_library.c` has its own ways to call.
pub(super) fn wrapped(source: &str) -> Vec<&str> {
    source
        .lines()
        .filter_map(|line| {
            let (kind, rest) = line.split_once('(')?;
            let at = match kind {
                "RAW" | "SEALED" => 1,
                "MAKES" | "MAKES_OPTIONAL" | "CONTROLS" | "WRAPS" => 0,
                _ => return None,
            };
            rest.split([',', ')']).nth(at).map(str::trim)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        let mut table = Table::default();
        table.read("test", text).expect("a table");
        table
    }

    #[test]
    fn a_family_inherits_and_private_nodes_stand_alone() {
        let text = versions(&table("V_1.0 a\nV_1.1 b\nV_PRIVATE_3 c void\n- open"), |_| true);
        assert!(text.contains("V_1.0 {\n  global: a;\n  local: _ZN*"), "{text}");
        assert!(text.contains("V_1.1 {\n  global: b;\n} V_1.0;\nV_PRIVATE_3 {\n};\n"), "{text}");
        assert!(!text.contains("open"), "{text}");
    }

    #[test]
    fn the_source_says_which_calls_are_wrapped() {
        let source = "#define RAW(result, name) x\nRAW(ssize_t, read, (int fd), fd)\nSEALED(int, close, (int fd), (fd))\n\
                      MAKES_OPTIONAL(open, (int a, ...), a, a)\nCONTROLS(fcntl)\n";
        assert_eq!(wrapped(source), ["read", "close", "open", "fcntl"]);
    }

    #[test]
    fn an_alias_carries_its_version() {
        let text = aliases(&table("V_1.0 a none\nV_1.1 a"));
        assert!(
            text.contains("errno = ENOSYS") && text.contains(".symver highwire_alias_0, a@V_1.0"),
            "{text}"
        );
        assert!(!text.contains("highwire_alias_1"), "{text}");
    }
}

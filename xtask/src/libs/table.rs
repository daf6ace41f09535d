//! The table of exported symbols, as `crates/ibverbs/symbols/*.txt` writes it.

use anyhow::{Context, Result, bail};

/// The definition of a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The function of that name.
    Itself,
    /// Another name's function.
    Function(String),
    /// NULL with errno ENOSYS.
    Null,
    /// EOPNOTSUPP as the result.
    Errno,
    /// Zero.
    Void,
    /// A word of data, zero.
    Data,
}

/// One symbol under one version; no node means that it has no version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) node: Option<String>,
    pub(crate) name: String,
    pub(crate) behind: Behind,
}

/// Every symbol, in the order of the files.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) symbols: Vec<Symbol>,
}

impl Table {
    /// Adds a file's lines: `NODE SYMBOL [BEHIND]`.
    pub(crate) fn read(&mut self, file: &str, text: &str) -> Result<()> {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                self.read_line(line).with_context(|| format!("{file}, line {number}: `{line}`"))?;
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let (Some(node), Some(name)) = (words.next(), words.next()) else {
            bail!("a line has a node and a symbol");
        };
        let behind = match (words.next(), words.next()) {
            (None, _) => Behind::Itself,
            (Some("="), Some(function)) => Behind::Function(function.into()),
            (Some("none"), None) => Behind::Null,
            (Some("errno"), None) => Behind::Errno,
            (Some("void"), None) => Behind::Void,
            (Some("data"), None) => Behind::Data,
            _ => bail!("the third column is nothing, `= NAME`, `none`, `errno`, `void` or `data`"),
        };
        for (node, number) in expand(node) {
            let name = name.replace("{}", &number);
            let node = (node != "-").then_some(node);
            self.symbols.push(Symbol { node, name, behind: behind.clone() });
        }
        Ok(())
    }

    /// The version nodes, in the order of the files.
    pub(crate) fn nodes(&self) -> Vec<&str> {
        let mut nodes: Vec<&str> = Vec::new();
        for node in self.symbols.iter().filter_map(|symbol| symbol.node.as_deref()) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }
}

/// `X_{25,33}` as `X_25` and `X_33`, each with its number.
fn expand(node: &str) -> Vec<(String, String)> {
    let Some((before, numbers)) = node.split_once('{') else { return vec![(node.into(), String::new())] };
    let numbers = numbers.trim_end_matches('}').split(',');
    numbers.map(|number| (format!("{before}{number}"), number.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_stand_for_several_nodes() {
        let mut table = Table::default();
        table.read("test", "P_{3,4} register_{} void # why\n\nA_1 open\n- open").expect("a table");
        let names: Vec<_> =
            table.symbols.iter().map(|s| (s.node.as_deref().unwrap_or("-"), s.name.as_str())).collect();
        assert_eq!(names, [("P_3", "register_3"), ("P_4", "register_4"), ("A_1", "open"), ("-", "open")]);
        assert_eq!(table.symbols[0].behind, Behind::Void);
        assert_eq!(table.nodes(), ["P_3", "P_4", "A_1"]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = Table::default().read("x.txt", "A_1 open\nA_1 close maybe").expect_err("a wrong line");
        assert!(format!("{error:#}").contains("x.txt, line 2"), "{error:#}");
    }
}

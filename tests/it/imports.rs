//! Tests of the module order: a module imports only from modules that `lib.rs` declares above it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// Returns the modules of the crate, in the order of their declarations.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(format!("{SRC}/lib.rs")).unwrap();
    let names = lib.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned)
    });
    names.collect()
}

/// Returns the names after `crate::` in the code of a file: `crate::a::B` and `crate::{a::B, C}`.
fn imported(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .map(|line| if line.trim_start().starts_with("//") { "" } else { line })
        .collect::<Vec<_>>()
        .join("\n");
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if code[..at].ends_with("(in ") {
            continue;
        }
        let Some(list) = rest.strip_prefix('{') else {
            names.push(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    names.push(word(&list[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the module from which `lib.rs` re-exports a name.
fn home(name: &str) -> Option<String> {
    let lib = fs::read_to_string(format!("{SRC}/lib.rs")).unwrap();
    lib.split("pub use ").skip(1).find_map(|export| {
        let (module, names) = export.split_once("::")?;
        let names = names.split(';').next()?;
        let mut words = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == name).then(|| module.to_owned())
    })
}

#[test]
fn modules_import_only_from_those_above_them() {
    let modules = modules();
    let place = |name: &str| modules.iter().position(|module| module == name);
    let mut files = Vec::new();
    rust_files(Path::new(SRC), &mut files);
    let (mut num_files, mut num_imports) = (0, 0);
    let mut wrong = Vec::new();
    for path in files {
        let relative = path.strip_prefix(SRC).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        let Some(own) = place(first.strip_suffix(".rs").unwrap_or(&first)) else {
            assert!(first == "lib.rs" || first == "bin", "{} is in no module of lib.rs", relative.display());
            continue;
        };
        if relative.file_stem().unwrap() == "tests" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Unit tests at the end of a file may import anything.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        num_files += 1;
        for name in imported(text) {
            let module = if place(&name).is_some() { Some(name.clone()) } else { home(&name) };
            let Some(module) = module.as_deref().and_then(place) else {
                // `lib.rs` itself defines no items.
                wrong.push(format!("{}: crate::{name} is in no module", relative.display()));
                continue;
            };
            num_imports += 1;
            if module > own {
                wrong.push(format!("{}: {} is below {}", relative.display(), modules[module], modules[own]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Lower counts mean that this test no longer finds the sources or their imports.
    assert!(num_files >= 40 && num_imports >= 100, "{num_files} files, {num_imports} imports");
    assert_eq!(modules.first().map(String::as_str), Some("error"));
    println!("{num_files} files, {num_imports} imports, {} modules", modules.len());
}

#[test]
fn the_guard_sees_every_way_to_import() {
    let text = "use crate::board::Board;\nuse crate::{Archive, query::{self, Query}, run};\n// crate::no\nfn f(x: crate::loader::Loader) {}";
    assert_eq!(imported(text), ["board", "Archive", "query", "run", "loader"]);
    assert_eq!(home("Archive").as_deref(), Some("archive"));
    assert_eq!(home("StepTable").as_deref(), Some("table"));
}

/// Returns the modules that the table of files at the top of a `mod.rs` names; `None` if there is no table.
fn listed(text: &str) -> Option<BTreeSet<String>> {
    let mut lines = text.lines().skip_while(|line| *line != "//! | file | owns |").skip(2).peekable();
    lines.peek()?;
    let cells = lines.map_while(|line| line.strip_prefix("//! | ")?.split(" | ").next());
    Some(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(word).collect())
}

#[test]
fn file_tables_list_exactly_the_files() {
    let mut files = Vec::new();
    rust_files(Path::new(SRC), &mut files);
    let (mut num_tables, mut wrong) = (0, Vec::new());
    for path in files.iter().filter(|path| path.ends_with("mod.rs")) {
        let Some(listed) = listed(&fs::read_to_string(path).unwrap()) else { continue };
        num_tables += 1;
        let folder = path.parent().unwrap();
        let names = fs::read_dir(folder).unwrap().map(|entry| word(entry.unwrap().file_name().to_str().unwrap()));
        let there: BTreeSet<String> = names.filter(|name| name != "mod" && name != "tests").collect();
        let module = folder.strip_prefix(SRC).unwrap().display();
        wrong.extend(there.difference(&listed).map(|name| format!("{module}: {name} is not in the table")));
        wrong.extend(listed.difference(&there).map(|name| format!("{module}: there is no {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(num_tables >= 6, "{num_tables} tables");
}

#[test]
fn the_names_in_a_table_are_found() {
    let text = "//! A module.\n//!\n//! | file | owns |\n//! | --- | --- |\n//! | `a.rs`, `b/` | `c` |\n//! | `d` | e |\n\nmod a;";
    assert_eq!(listed(text), Some(["a", "b", "d"].map(str::to_owned).into()));
    assert_eq!(listed("//! A module without a table."), None);
}

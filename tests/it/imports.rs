//! The direction of imports: a module of the core imports only from modules that `lib.rs` declares above it, and the files
//! of a module, or of a client of the core, do not import from each other in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folders of the packages' sources, the core's first.
const PACKAGES: [&str; 4] = ["src", "cli/src", "explore/src", "python/src"];

/// The parts of a path: `["crate", "board", "Board"]`.
type Names = Vec<String>;

/// A source file, parsed.
#[derive(Default)]
struct SourceFile {
    /// The items that the file defines.
    items: BTreeSet<String>,
    /// The child modules that the file declares, and whether only tests have them.
    children: Vec<(String, bool)>,
    /// Names that `use` brings in, and the paths behind them.
    uses: BTreeMap<String, Names>,
    /// The paths of `use path::*`.
    globs: Vec<Names>,
    /// The paths that the file's code needs: imports that are not mere re-exports, and paths in code.
    references: BTreeSet<Names>,
    /// The number of inline modules (`mod name { … }`) around the item that is being read.
    depth: usize,
}

fn only_in_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg") && matches!(&a.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

impl SourceFile {
    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        file.visit_file(&syn::parse_file(text).unwrap());
        file
    }

    /// Returns `path` as it reads outside of the inline modules around it: their `super` may be the file itself.
    fn outside(&self, mut path: Names) -> Names {
        let num_inside = path.iter().take_while(|name| *name == "super").count().min(self.depth);
        path.drain(..num_inside);
        if num_inside > 0 && path.first().is_none_or(|name| name != "super") {
            path.insert(0, "self".to_owned());
        }
        path
    }

    fn import(&mut self, tree: &syn::UseTree, mut path: Names, is_reexport: bool) {
        let name = match tree {
            syn::UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(&tree.tree, path, is_reexport);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, path.clone(), is_reexport));
            }
            syn::UseTree::Glob(_) => {
                let path = self.outside(path);
                self.globs.push(path.clone());
                if !is_reexport {
                    self.references.insert(path);
                }
                return;
            }
            syn::UseTree::Name(name) if name.ident == "self" => path.last().unwrap().clone(),
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                name.ident.to_string()
            }
            syn::UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                rename.rename.to_string()
            }
        };
        let path = self.outside(path);
        if !is_reexport {
            self.references.insert(path.clone());
        }
        self.uses.insert(name, path);
    }
}

impl<'a> Visit<'a> for SourceFile {
    fn visit_item(&mut self, item: &'a syn::Item) {
        use syn::Item;
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            Item::Mod(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        let in_tests = only_in_tests(attributes);
        match item {
            Item::Mod(item) if item.content.is_none() => self.children.push((item.ident.to_string(), in_tests)),
            _ if in_tests => {}
            Item::Mod(item) => {
                self.depth += 1;
                visit::visit_item_mod(self, item);
                self.depth -= 1;
            }
            Item::Use(item) => self.import(&item.tree, Names::new(), !matches!(item.vis, syn::Visibility::Inherited)),
            _ => {
                self.items.extend(name.map(ToString::to_string));
                visit::visit_item(self, item);
            }
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.references.insert(self.outside(names));
        visit::visit_path(self, path);
    }

    /// Finds the paths among the tokens of a macro, which have no syntax of their own.
    fn visit_macro(&mut self, item: &'a syn::Macro) {
        let text = item.tokens.to_string().replace(" :: ", "::");
        let words =
            text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').filter(|word| word.contains("::"));
        let paths = words.map(|word| self.outside(word.split("::").map(str::to_owned).collect()));
        self.references.extend(paths.collect::<Vec<_>>());
        visit::visit_macro(self, item);
    }

    fn visit_vis_restricted(&mut self, _: &'a syn::VisRestricted) {}
}

/// The files of a crate by the paths of their modules: `[]` is `lib.rs`, `["board", "tables"]` is `board/tables.rs`.
struct Sources {
    files: BTreeMap<Names, SourceFile>,
}

impl Sources {
    fn of_crate(folder: &str) -> Self {
        let mut sources = Self { files: BTreeMap::new() };
        sources.add(Names::new(), &|module| {
            let stem =
                format!("{ROOT}/{folder}/{}", if module.is_empty() { "lib".to_owned() } else { module.join("/") });
            let path =
                [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|path| Path::new(path).exists());
            fs::read_to_string(path.unwrap_or_else(|| panic!("no file of {module:?}"))).unwrap()
        });
        sources
    }

    fn add(&mut self, module: Names, read: &dyn Fn(&Names) -> String) {
        let file = SourceFile::parse(&read(&module));
        for (child, _) in file.children.iter().filter(|(_, in_tests)| !in_tests) {
            self.add(module.iter().chain([child]).cloned().collect(), read);
        }
        self.files.insert(module, file);
    }

    /// The path from the crate's root that `path` means in `module`, or `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Names> {
        let first = path.first()?.as_str();
        if first == "crate" {
            return Some(path[1..].to_vec());
        }
        let num_supers = path.iter().take_while(|name| *name == "super").count();
        if num_supers > 0 || first == "self" {
            let base = &module[..module.len().checked_sub(num_supers)?];
            let rest = path.iter().skip_while(|name| *name == "super" || *name == "self");
            return Some(base.iter().chain(rest).cloned().collect());
        }
        let file = &self.files[module];
        let is_child = file.children.iter().any(|(child, _)| child == first) && path.len() > 1;
        let is_used = file.uses.contains_key(first);
        (is_child || is_used).then(|| module.iter().chain(path).cloned().collect())
    }

    /// The module of the file that defines the item at `path`, which starts at the crate's root.
    fn home(&self, path: &[String], depth: usize) -> Option<Names> {
        let len = (0..=path.len()).rev().find(|&len| self.files.contains_key(&path[..len]))?;
        let (module, rest) = path.split_at(len);
        let file = &self.files[module];
        let Some(name) = rest.first() else { return Some(module.to_vec()) };
        if file.items.contains(name) || depth > 20 {
            return Some(module.to_vec());
        }
        if let Some(behind) = file.uses.get(name) {
            let external = behind.first() == Some(name);
            let target = if external { None } else { self.absolute(module, behind) }?;
            let target: Names = target.iter().chain(&rest[1..]).cloned().collect();
            return self.home(&target, depth + 1);
        }
        let mut globs = file.globs.iter().filter_map(|glob| self.absolute(module, glob));
        let defines = |glob: &Names| self.files.get(glob).is_some_and(|file| file.items.contains(name));
        Some(globs.find(defines).unwrap_or_else(|| module.to_vec()))
    }

    /// The files that the file of `module` needs items of.
    fn needs(&self, module: &[String]) -> BTreeSet<Names> {
        let references = &self.files[module].references;
        let paths = references.iter().filter_map(|path| self.absolute(module, path));
        paths.filter_map(|path| self.home(&path, 0)).filter(|home| home != module).collect()
    }
}

/// Whether following `needs` from `from` leads to `to`.
fn leads(needs: &BTreeMap<Names, BTreeSet<Names>>, from: &Names, to: &Names) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        if file == to {
            return true;
        }
        if seen.insert(file) {
            next.extend(&needs[file]);
        }
    }
    false
}

/// The imports that are part of a circle: the imported file leads back to the one that imports it.
fn in_circles(needs: &BTreeMap<Names, BTreeSet<Names>>) -> Vec<(Names, Names)> {
    let imports = needs.iter().flat_map(|(file, needs)| needs.iter().map(move |need| (file, need)));
    imports.filter(|(file, need)| leads(needs, need, file)).map(|(file, need)| (file.clone(), need.clone())).collect()
}

#[test]
fn modules_import_only_from_those_above_them() {
    let sources = Sources::of_crate(PACKAGES[0]);
    let modules: Vec<&String> = sources.files[&Names::new()].children.iter().map(|(name, _)| name).collect();
    let place = |name: &String| modules.iter().position(|module| *module == name).unwrap();
    let (mut num_imports, mut wrong) = (0, Vec::new());
    for module in sources.files.keys().filter(|module| !module.is_empty()) {
        for home in sources.needs(module) {
            num_imports += 1;
            match home.first() {
                None => wrong.push(format!("{}: imports an item of lib.rs itself", module.join("::"))),
                Some(other) if place(other) > place(&module[0]) => {
                    wrong.push(format!("{}: {other} is below {}", module.join("::"), module[0]));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A smaller number would mean that the test no longer finds the sources or their imports.
    assert!(sources.files.len() >= 180 && num_imports >= 800, "{} files, {num_imports} imports", sources.files.len());
    println!("{} files, {num_imports} imports between files, {} modules", sources.files.len(), modules.len());
}

#[test]
fn files_of_a_module_do_not_import_in_circles() {
    let (mut num_files, mut circles) = (0, Vec::new());
    for package in PACKAGES {
        let sources = Sources::of_crate(package);
        // A client is small: all its files are one group.
        let group = |module: &Names| module.first().filter(|_| package == PACKAGES[0]).cloned();
        let needs = sources.files.keys().filter(|module| !module.is_empty()).map(|module| {
            let mut needs = sources.needs(module);
            needs.retain(|home| !home.is_empty() && group(home) == group(module));
            (module.clone(), needs)
        });
        let needs: BTreeMap<_, _> = needs.collect();
        num_files += needs.len();
        let describe =
            |(file, need): (Names, Names)| format!("{package}: {} imports from {}", file.join("::"), need.join("::"));
        circles.extend(in_circles(&needs).into_iter().map(describe));
    }
    assert!(circles.is_empty(), "{circles:#?}");
    assert!(num_files >= 280, "{num_files} files");
    println!("no circle among {num_files} files");
}

/// A crate of the given files, by the paths of their modules.
fn crate_of(files: &[(&str, &str)]) -> Sources {
    let mut sources = Sources { files: BTreeMap::new() };
    sources.add(Names::new(), &|module| {
        let module = module.join("::");
        files.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("no file of {module:?}")).1.to_owned()
    });
    sources
}

fn names(paths: &[&str]) -> BTreeSet<Names> {
    paths.iter().map(|path| path.split("::").map(str::to_owned).collect()).collect()
}

#[test]
fn every_kind_of_import_is_followed_to_the_file_that_defines_the_item() {
    let sources = crate_of(&[
        ("", "mod a; mod b; mod c; mod d; pub use a::{Thing, other as renamed};"),
        ("a", "mod inner; pub(crate) use inner::*; pub use inner::other; pub struct Own; #[cfg(test)] mod tests;"),
        ("a::inner", "pub struct Thing; pub fn other() {} pub mod deep { pub fn f() {} }"),
        ("b", "use crate::{Thing, a::{self, Own}}; use std::fs; fn f() { a::other(); fs::read(\"\"); }"),
        ("d", "pub fn g() {} mod inline { use super::g; use super::super::a::Own; }"),
        (
            "c",
            "//! crate::b in words\nfn f() { crate::renamed(); assert!(super::b::f() == 1); } #[cfg(test)] mod tests { use crate::a::Own; }",
        ),
    ]);
    assert_eq!(sources.files.len(), 6, "a::tests has no file and is not read");
    assert_eq!(sources.needs(&names(&["a"]).pop_first().unwrap()), names(&[]), "re-exports are no imports");
    assert_eq!(sources.needs(&names(&["b"]).pop_first().unwrap()), names(&["a", "a::inner"]));
    assert_eq!(sources.needs(&names(&["c"]).pop_first().unwrap()), names(&["a::inner", "b"]));
    assert_eq!(sources.needs(&names(&["d"]).pop_first().unwrap()), names(&["a"]));
}

#[test]
fn circles_are_found() {
    let needs = [("a", &["b"][..]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &["e"]), ("e", &[])];
    let needs = needs.map(|(file, needs)| (vec![file.to_owned()], names(needs)));
    let found = in_circles(&needs.into()).into_iter().map(|(file, need)| file[0].clone() + &need[0]);
    assert_eq!(found.collect::<Vec<_>>(), ["bc", "cb"]);
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The modules whose files or folders the table at the top of a `mod.rs` names, if there is a table.
fn listed(text: &str) -> Option<BTreeSet<String>> {
    let mut lines = text.lines().skip_while(|line| *line != "//! | file | owns |").skip(2).peekable();
    lines.peek()?;
    let cells = lines.map_while(|line| line.strip_prefix("//! | ")?.split(" | ").next());
    Some(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(word).collect())
}

#[test]
fn tables_of_files_name_each_file_and_no_other() {
    let (mut num_tables, mut wrong) = (0, Vec::new());
    let files = PACKAGES.iter().flat_map(|package| walkdir::WalkDir::new(Path::new(ROOT).join(package)));
    for entry in files {
        let path = entry.unwrap().into_path();
        if !path.ends_with("mod.rs") && !path.ends_with("lib.rs") {
            continue;
        }
        let Some(listed) = listed(&fs::read_to_string(&path).unwrap()) else { continue };
        num_tables += 1;
        let folder = path.parent().unwrap();
        let names = fs::read_dir(folder).unwrap().map(|entry| word(entry.unwrap().file_name().to_str().unwrap()));
        let there: BTreeSet<String> =
            names.filter(|name| !["mod", "lib", "bin", "tests"].contains(&name.as_str())).collect();
        let module = folder.strip_prefix(ROOT).unwrap().display();
        wrong.extend(there.difference(&listed).map(|name| format!("{module}: {name} is not in the table")));
        wrong.extend(
            listed.difference(&there).map(|name| format!("{module}: the table names {name}, which does not exist")),
        );
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

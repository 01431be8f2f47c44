//! The text of a statement, parsed and not yet planned.

use super::MAX_SQL_BYTES;
use super::functions;
use crate::error::{Error, Result};
use crate::query::query_error;
use datafusion::common::config::SqlParserOptions;
use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, Select, Statement, TableFactor, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Tables that a plan may have, common table expressions written out: each costs planning time and threads.
const MAX_TABLES: u64 = 256;

/// Refuses a text that is too long to be parsed.
pub(in crate::query) fn check_length(text: &str) -> Result<()> {
    if text.len() > MAX_SQL_BYTES {
        let why = format!("it has {} bytes, expected at most {MAX_SQL_BYTES}", text.len());
        return Err(Error::refused("the statement", why));
    }
    Ok(())
}

/// The one statement of a text.
pub(in crate::query) fn parse(text: &str, options: &SqlParserOptions) -> Result<Parsed> {
    let dialect = dialect_from_str(options.dialect).ok_or_else(|| Error::query("no such dialect"))?;
    let parser = DFParserBuilder::new(text).with_dialect(dialect.as_ref());
    let parser = parser.with_recursion_limit(options.recursion_limit.get()).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements()).map_err(query_error)?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(Error::query("no statement: expected one SELECT, WITH, VALUES or EXPLAIN")),
        (Some(_), more) => Err(Error::refused(format!("{} statements", more + 1), "a query is one")),
    }
}

/// Refuses whatever is not reading these tables.
pub(in crate::query) fn check(parsed: &Parsed, tables: &[&str]) -> Result<()> {
    let statement = match parsed {
        Parsed::Statement(statement) => statement.as_ref(),
        Parsed::Explain(explain) => match explain.statement.as_ref() {
            Parsed::Statement(statement) => statement.as_ref(),
            other => return Err(not_a_query(&format!("EXPLAIN of {}", first_words(&other.to_string())))),
        },
        other => return Err(not_a_query(&first_words(&other.to_string()))),
    };
    let Statement::Query(_) = statement else {
        return Err(not_a_query(&first_words(&statement.to_string())));
    };
    let mut scope = Scope { tables, ..Scope::default() };
    if let ControlFlow::Break(error) = statement.visit(&mut scope) {
        return Err(*error);
    }
    let num_tables = scope.num_tables();
    if num_tables > MAX_TABLES {
        let what = format!("a statement over {num_tables} tables");
        return Err(Error::refused(what, format!("expected at most {MAX_TABLES}, WITH written out")));
    }
    Ok(())
}

fn not_a_query(what: &str) -> Error {
    Error::refused(what, "a query reads: expected one SELECT, WITH, VALUES or EXPLAIN")
}

/// As much of a statement as names its kind.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    words.join(" ").chars().take(40).collect()
}

/// The names that a statement uses and makes.
#[derive(Default)]
struct Scope<'a> {
    tables: &'a [&'a str],
    /// What stands in FROM outside of any common table expression, and in each of those.
    used: Vec<String>,
    made: HashMap<String, Vec<String>>,
    /// The queries behind common table expressions that have not been visited yet, by address.
    bodies: HashMap<*const Query, String>,
    /// Those around what is being visited.
    open: Vec<(*const Query, String)>,
}

impl Scope<'_> {
    fn use_table(&mut self, name: String) {
        match self.open.last() {
            Some((_, made)) => self.made.entry(made.clone()).or_default().push(name),
            None => self.used.push(name),
        }
    }

    /// Tables in all, each use of a common table expression counted as those that it uses.
    fn num_tables(&self) -> u64 {
        fn weight(scope: &Scope<'_>, name: &str, around: &mut Vec<String>, known: &mut HashMap<String, u64>) -> u64 {
            if let Some(&weight) = known.get(name) {
                return weight;
            }
            let Some(uses) = scope.made.get(name).filter(|_| !around.iter().any(|other| other == name)) else {
                return 1;
            };
            around.push(name.to_owned());
            let sum = uses.iter().fold(1_u64, |sum, used| sum.saturating_add(weight(scope, used, around, known)));
            around.pop();
            known.insert(name.to_owned(), sum);
            sum
        }
        let mut known = HashMap::new();
        let outside = self
            .used
            .iter()
            .fold(0_u64, |sum, name| sum.saturating_add(weight(self, name, &mut Vec::new(), &mut known)));
        // Those that nobody uses are planned as well.
        let made: Vec<String> = self.made.keys().cloned().collect();
        made.iter().fold(outside, |sum, name| sum.saturating_add(weight(self, name, &mut Vec::new(), &mut known)))
    }
}

impl Visitor for Scope<'_> {
    type Break = Box<Error>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Box<Error>> {
        match statement {
            Statement::Query(_) => ControlFlow::Continue(()),
            other => refuse(&first_words(&other.to_string()), "a query reads and changes nothing"),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        if let Some(name) = self.bodies.remove(&std::ptr::from_ref(query)) {
            self.open.push((query, name));
        }
        if let Some(with) = &query.with {
            if with.recursive {
                return refuse("WITH RECURSIVE", "it may never end");
            }
            for table in &with.cte_tables {
                let name = normalized(&table.alias.name.value, table.alias.name.quote_style.is_some());
                self.made.entry(name.clone()).or_default();
                self.bodies.insert(table.query.as_ref(), name);
            }
        }
        if !query.locks.is_empty() {
            return refuse("FOR UPDATE", "a query changes nothing, so it locks nothing");
        }
        if query.settings.is_some() {
            return refuse("SETTINGS", "a query does not configure the engine");
        }
        if query.format_clause.is_some() || query.for_clause.is_some() {
            return refuse("FORMAT", "results are Arrow");
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        self.open.pop_if(|(body, _)| std::ptr::eq(*body, query));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<Error>> {
        match &select.into {
            Some(into) => refuse(&into.to_string(), "a query changes nothing"),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Box<Error>> {
        match table {
            TableFactor::Table { name, args, sample, version, .. } => {
                if args.is_some() {
                    return refuse(&format!("the table function {name}"), "tables are read, not made");
                }
                if sample.is_some() {
                    return refuse("TABLESAMPLE", "it is not supported; compare random() with a share");
                }
                if version.is_some() {
                    return refuse("a table's version", "open the archive at that version");
                }
                self.use_relation(name)
            }
            TableFactor::Derived { sample: Some(_), .. } => {
                refuse("TABLESAMPLE", "it is not supported; compare random() with a share")
            }
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } | TableFactor::UNNEST { .. } => {
                ControlFlow::Continue(())
            }
            other => refuse(&first_words(&other.to_string()), "tables are read, not made"),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        let variable = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.first(),
            _ => None,
        };
        if let Some(name) = variable.filter(|name| name.value.starts_with('@')) {
            return refuse(&format!("the variable {name}"), "a query learns nothing of the engine's settings");
        }
        if let Expr::Function(function) = expr {
            let name = function.name.to_string().to_ascii_lowercase();
            if let Some(why) = functions::why_left_out(name.trim_matches('"')) {
                return refuse(&format!("the function {name}"), why);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Scope<'_> {
    fn use_relation(&mut self, name: &ObjectName) -> ControlFlow<Box<Error>> {
        let identifier = match name.0.as_slice() {
            [part] => part.as_ident(),
            _ => None,
        };
        let Some(identifier) = identifier else {
            return refuse(&format!("the table {name}"), &self.what_there_is());
        };
        let known = normalized(&identifier.value, identifier.quote_style.is_some());
        if !self.tables.contains(&known.as_str()) && !self.made.contains_key(&known) {
            return refuse(&format!("the table {name}"), &self.what_there_is());
        }
        self.use_table(known);
        ControlFlow::Continue(())
    }

    fn what_there_is(&self) -> String {
        // A name that is not in lower case is only that in quotes.
        let as_written = |name: &&str| if *name == name.to_lowercase() { (*name).into() } else { format!("{name:?}") };
        let names: Vec<String> = self.tables.iter().map(as_written).collect();
        format!("a query reads the archive's tables and those given with it: {}", names.join(", "))
    }
}

/// A name as the engine compares it.
fn normalized(name: &str, is_quoted: bool) -> String {
    if is_quoted { name.to_owned() } else { name.to_lowercase() }
}

fn refuse(what: &str, why: &str) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(Error::refused(what, why)))
}

//! Checks of a statement's syntax tree, before it is planned.

use super::names::{qualify_keys, replace_position};
use super::plan;
use crate::error::{Error, Result};
use crate::query::engine::errors::{did_you_mean, query_error};
use crate::query::named::SavedQuery;
use crate::query::refused::{self, name_of};
use crate::query::rewrites::UNARY_MINUS;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, OrderByExpr, OrderByKind, OrderByOptions, Query,
    Select, SelectFlavor, SelectItem, SetExpr, Statement, TableAlias, TableFactor, UnaryOperator, Value, Visit,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// The longest statement in bytes. Long lists of values belong in a table.
const MAX_SQL_BYTES: usize = 64 << 10;
/// The maximum number of tables of a plan, with common table expressions expanded. Each table costs planning time and
/// threads.
const MAX_TABLES: u64 = 64;
/// The deepest nesting of expressions. Dropping deeper ones would overflow the stack of their thread.
const MAX_DEPTH: usize = 500;
/// The maximum number of SELECTs of a statement.
const MAX_SELECTS: usize = 256;
/// The maximum number of structs of columns.
const MAX_STRUCTS: usize = 8;
/// The maximum number of columns of a CUBE. `n` columns make `2^n` groupings.
const MAX_CUBE: usize = 8;
/// The maximum number of type constructors of a statement, such as `[]` and `array<`. Each builds a type from another
/// type.
const MAX_NESTED_TYPES: usize = 32;

/// Rejects a text that is too long to be parsed.
pub(in crate::query) fn check_length(text: &str) -> Result<()> {
    if text.len() > MAX_SQL_BYTES {
        let why = format!("it has {} bytes, expected at most {MAX_SQL_BYTES}", text.len());
        return Err(Error::refused("the statement", why));
    }
    let lower = text.to_ascii_lowercase();
    let nested = ["[]", "array<", "struct<", "map<"].iter().map(|part| lower.matches(part).count()).sum::<usize>();
    if nested > MAX_NESTED_TYPES {
        let why = format!("it has {nested} nested types, expected at most {MAX_NESTED_TYPES}");
        return Err(Error::refused("the statement", why));
    }
    Ok(())
}

/// Plans a text of one statement over these tables. The types of the plan are not resolved.
pub(in crate::query) async fn planned(text: &str, tables: &[&str], state: &SessionState) -> Result<LogicalPlan> {
    let mut parsed = parse(text, state)?;
    let statement = query_of(&mut parsed)?;
    if let ControlFlow::Break(error) = Visit::visit(&*statement, &mut Checks { tables, ..Checks::default() }) {
        return Err(*error);
    }
    if let ControlFlow::Break(error) = VisitMut::visit(statement, &mut Rewrites::default()) {
        return Err(*error);
    }
    let plan = state.statement_to_plan(parsed).await.map_err(query_error)?;
    plan::check(&plan).and_then(|()| refused::check_plan(&plan)).map_err(query_error)?;
    Ok(plan)
}

fn parse(text: &str, state: &SessionState) -> Result<Parsed> {
    let options = &state.config_options().sql_parser;
    let dialect = dialect_from_str(options.dialect).ok_or_else(|| Error::query("unknown SQL dialect"))?;
    let parser = DFParserBuilder::new(text).with_dialect(dialect.as_ref());
    let parser = parser.with_recursion_limit(options.recursion_limit.get()).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements()).map_err(query_error)?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(Error::query("no statement: expected one SELECT, WITH or VALUES")),
        (Some(_), more) => Err(Error::refused(format!("{} statements", more + 1), "expected one statement")),
    }
}

/// Returns the query of a statement, or the error for a statement that does more than read.
fn query_of(parsed: &mut Parsed) -> Result<&mut Statement> {
    let what = match parsed {
        Parsed::Statement(statement) => match statement.as_mut() {
            query @ Statement::Query(_) => return Ok(query),
            other => first_words(&other.to_string()),
        },
        Parsed::Explain(_) => "EXPLAIN".to_owned(),
        other => first_words(&other.to_string()),
    };
    let why = match what.split_whitespace().next().map(str::to_uppercase).as_deref() {
        Some("DESCRIBE" | "DESC" | "SHOW") => {
            "the tables are steps, runs and annotations: `a2store schema ARCHIVE` and archive.schema(\"steps\") list their columns"
        }
        Some("EXPLAIN") => "the option --explain and the method `explain` of a query return its plan",
        _ => "a query only reads: expected one SELECT, WITH or VALUES",
    };
    Err(Error::refused(what, why))
}

/// Rewrites of a statement: FROM without SELECT, positions in ORDER BY, keys of USING in WHERE, the unary minus,
/// functions of other engines that DataFusion lacks, functions that return unsigned counts, and names of derived
/// tables.
#[derive(Default)]
struct Rewrites {
    /// Whether each of the enclosing queries has an ORDER BY.
    sorted: Vec<bool>,
    /// The number of expressions that enclose the current node.
    depth: usize,
    num_names: usize,
}

impl VisitorMut for Rewrites {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Box<Error>> {
        let is_select = matches!(*query.body, SetExpr::Select(_));
        self.sorted.push(is_select && query.order_by.is_some());
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by)
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            // A repeated key decides nothing. Without it, no expression is copied twice.
            let mut constants = HashSet::new();
            keys.retain(|key| !matches!(key.expr, Expr::Value(_)) || constants.insert(key.expr.to_string()));
            keys.iter_mut().for_each(|key| replace_position(key, select));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Box<Error>> {
        self.sorted.pop();
        ControlFlow::Continue(())
    }

    /// Adds the `SELECT *` that `FROM runs` stands for. DataFusion takes it for a SELECT without columns.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Box<Error>> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        qualify_keys(select);
        ControlFlow::Continue(())
    }

    /// Gives an alias to each derived table without one in the FROM of a query with ORDER BY, so that its columns have
    /// a qualifier. Without qualifiers, DataFusion resolves a name in ORDER BY to the input column, even if an output
    /// column has it, as in `SELECT m AS k, k AS m FROM (SELECT 1 AS k, 2 AS m) ORDER BY m`. No upstream issue was
    /// found. Subqueries in expressions stay as they are, because they may refer to columns of their outer query.
    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Box<Error>> {
        if let TableFactor::Derived { alias: alias @ None, .. } = table
            && self.depth == 0
            && self.sorted.last() == Some(&true)
        {
            self.num_names += 1;
            let name = Ident::with_quote('"', format!("derived table {}", self.num_names));
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<Box<Error>> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Box<Error>> {
        self.depth -= 1;
        match expr {
            Expr::Function(function) => {
                let name = bare_name(&function.name).unwrap_or_default();
                replace_function(&name, function)?;
                if COUNTS.contains(&name.as_str()) {
                    *expr = as_bigint(std::mem::replace(expr, Expr::value(Value::Null)));
                }
            }
            // The minus before a number or an interval is part of the literal.
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }
                if !matches!(inner.as_ref(), Expr::Value(_) | Expr::Interval(_)) =>
            {
                let right = Box::new(std::mem::replace(inner.as_mut(), Expr::value(Value::Null)));
                let (left, op) = (Box::new(Expr::value(Value::Null)), BinaryOperator::Custom(UNARY_MINUS.into()));
                *expr = Expr::BinaryOp { left, op, right };
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Functions that return a uint64, or a number with the dictionary of their text. A cast to int64 makes a plain column
/// of it, and lets differences be negative: `row_number() OVER (…) - 10`.
const COUNTS: [&str; 18] = [
    "row_number",
    "rank",
    "dense_rank",
    "ntile",
    "approx_distinct",
    "array_length",
    "array_ndims",
    "array_position",
    "cardinality",
    "list_length",
    "list_ndims",
    "list_position",
    "ascii",
    "bit_length",
    "char_length",
    "character_length",
    "length",
    "octet_length",
];

fn as_bigint(expr: Expr) -> Expr {
    let (kind, data_type, array) = (CastKind::Cast, DataType::BigInt(None), false);
    Expr::Cast { kind, expr: Box::new(expr), data_type, array, format: None }
}

/// Returns a name without qualifiers, as DataFusion looks it up.
fn bare_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(name_of),
        _ => None,
    }
}

/// Replaces `variance(x)`, `count_if(x)`, `arg_max(x, y)` and `arg_min(x, y)`.
fn replace_function(name: &str, function: &mut Function) -> ControlFlow<Box<Error>> {
    let FunctionArguments::List(list) = &mut function.args else { return ControlFlow::Continue(()) };
    let values = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values = values.collect::<Option<Vec<Expr>>>().unwrap_or_default();
    let (replacement, condition) = match (name, values.as_slice()) {
        ("variance", _) => ("var_samp", None),
        ("count_if" | "countif", [condition]) => {
            if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
                return refuse("count_if(DISTINCT …)", "write bool_or(…)");
            }
            list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)];
            ("count", Some(condition.clone()))
        }
        ("arg_max" | "arg_min" | "max_by" | "min_by", [value, key]) => {
            if function.over.is_some() {
                let why = "use it with GROUP BY, or write first_value(…) OVER (… ORDER BY …)";
                return refuse(&format!("{name}(…) OVER"), why);
            }
            let asc = Some(name == "arg_min" || name == "min_by");
            let options = OrderByOptions { asc, nulls_first: Some(false) };
            let order = OrderByExpr { expr: key.clone(), options, with_fill: None };
            list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value.clone()))];
            list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order])];
            // Rows whose value or key is null are ignored.
            let is_set = |expr: &Expr| Expr::IsNotNull(Box::new(Expr::Nested(Box::new(expr.clone()))));
            ("first_value", Some(and(is_set(value), is_set(key))))
        }
        _ => return ControlFlow::Continue(()),
    };
    function.name = ObjectName::from(vec![Ident::new(replacement)]);
    if let Some(condition) = condition {
        function.filter = Some(Box::new(match function.filter.take() {
            None => condition,
            Some(filter) => and(*filter, condition),
        }));
    }
    ControlFlow::Continue(())
}

fn and(left: Expr, right: Expr) -> Expr {
    let [left, right] = [left, right].map(|side| Box::new(Expr::Nested(Box::new(side))));
    Expr::BinaryOp { left, op: BinaryOperator::And, right }
}

/// Shortens a part of a statement and replaces control characters, so that an error message can show it.
fn shown(part: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut text: String =
        part.chars().take(MAX_CHARS).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if part.chars().nth(MAX_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// Returns the first two words of a statement, which name its kind.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    shown(&words.join(" "))
}

/// Checks of a statement's syntax tree, and the number of its tables with common table expressions expanded. DataFusion
/// plans a common table expression again wherever it is used.
#[derive(Default)]
struct Checks<'a> {
    tables: &'a [&'a str],
    /// The number of tables of each enclosing query so far, from the outermost to the innermost.
    num_tables: Vec<u64>,
    /// The common table expressions that are visible, each with its number of tables, for each enclosing query.
    names: Vec<HashMap<String, u64>>,
    /// The names of common table expressions that have not been visited yet, by the address of their query.
    bodies: HashMap<*const Query, String>,
    num_selects: usize,
    num_structs: usize,
    /// The number of expressions that enclose the current node.
    depth: usize,
}

impl Visitor for Checks<'_> {
    type Break = Box<Error>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Box<Error>> {
        match statement {
            Statement::Query(_) => ControlFlow::Continue(()),
            other => refuse(&first_words(&other.to_string()), "a query only reads"),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.bodies.insert(table.query.as_ref(), name_of(&table.alias.name));
        }
        self.num_tables.push(0);
        self.names.push(HashMap::new());
        match query {
            query if query.with.as_ref().is_some_and(|with| with.recursive) => {
                refuse("WITH RECURSIVE", "it may never end")
            }
            query if !query.locks.is_empty() => refuse("FOR UPDATE", "a query only reads, so it needs no locks"),
            query if query.settings.is_some() => refuse("SETTINGS", "a query cannot configure the engine"),
            query if query.format_clause.is_some() || query.for_clause.is_some() => {
                refuse("FORMAT", "results are always Arrow")
            }
            query => broken(refused::check_query(query)),
        }
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        self.names.pop();
        let num_tables = self.num_tables.pop().unwrap_or_default();
        if num_tables > MAX_TABLES {
            let why = format!("expected at most {MAX_TABLES}, with common table expressions expanded");
            return refuse(&format!("a statement over {num_tables} tables"), &why);
        }
        if let (Some(name), Some(names)) = (self.bodies.remove(&std::ptr::from_ref(query)), self.names.last_mut()) {
            names.insert(name, num_tables + 1);
        } else {
            self.use_tables(num_tables);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<Error>> {
        self.num_selects += 1;
        if self.num_selects > MAX_SELECTS {
            return refuse("the statement", &format!("it has more than {MAX_SELECTS} SELECTs"));
        }
        if let Some(into) = &select.into {
            return refuse(&into.to_string(), "a query only reads");
        }
        broken(refused::check_joins(select.from.iter().flat_map(|table| &table.joins)))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Box<Error>> {
        match table {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                refuse("TABLESAMPLE", "it is not supported: use a condition such as random() < 0.1")
            }
            TableFactor::Table { version: Some(_), .. } => {
                refuse("a table's version, such as FOR SYSTEM_TIME", "open the archive at that version instead")
            }
            TableFactor::Table { name, args: None, .. } => self.use_relation(name),
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
                refuse(&format!("the table function {name}"), "a query only reads the given tables")
            }
            TableFactor::NestedJoin { table_with_joins, .. } => broken(refused::check_joins(&table_with_joins.joins)),
            TableFactor::Derived { .. } | TableFactor::UNNEST { .. } => ControlFlow::Continue(()),
            other => refuse(&first_words(&other.to_string()), "a query only reads the given tables"),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let why = format!("expressions are nested more than {MAX_DEPTH} deep");
            return refuse("the statement", &why);
        }
        match expr {
            expr if makes_struct(expr) => {
                self.num_structs += 1;
                match self.num_structs > MAX_STRUCTS {
                    true => refuse("the statement", &format!("it makes more than {MAX_STRUCTS} structs")),
                    false => ControlFlow::Continue(()),
                }
            }
            Expr::Cube(columns) if columns.len() > MAX_CUBE => {
                refuse("CUBE", &format!("it has {} columns, expected at most {MAX_CUBE}", columns.len()))
            }
            Expr::GroupingSets(sets) | Expr::Rollup(sets) if sets.len() > 1 << MAX_CUBE => {
                refuse("GROUPING SETS", &format!("expected at most {} groupings", 1 << MAX_CUBE))
            }
            expr => broken(refused::check_expr(expr)),
        }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<Box<Error>> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl Checks<'_> {
    fn use_tables(&mut self, number: u64) {
        if let Some(num_tables) = self.num_tables.last_mut() {
            *num_tables = num_tables.saturating_add(number);
        }
    }

    fn use_relation(&mut self, name: &ObjectName) -> ControlFlow<Box<Error>> {
        let known = bare_name(name);
        let made = self.names.iter().rev().find_map(|names| names.get(known.as_ref()?).copied());
        let is_given = known.as_deref().is_some_and(|known| self.tables.contains(&known));
        if let Some(num_tables) = made.or(is_given.then_some(1)) {
            self.use_tables(num_tables);
            return ControlFlow::Continue(());
        }
        // A name that is not in lower case needs quotes.
        let as_written = |name: &&str| if *name == name.to_lowercase() { (*name).into() } else { format!("{name:?}") };
        let names: Vec<String> = self.tables.iter().map(as_written).collect();
        let hint = known.map(|known| match SavedQuery::find(&known) {
            Ok(_) => format!("; {known} is a named query: `query` runs it, not `sql`"),
            Err(_) => did_you_mean(&known, names.iter().map(String::as_str)),
        });
        let why = format!("a query only reads these tables: {}{}", names.join(", "), hint.unwrap_or_default());
        refuse(&format!("the table {name}"), &why)
    }
}

/// Returns whether an expression makes a struct of columns. A struct of two equal structs has twice their type.
fn makes_struct(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) => matches!(bare_name(&call.name).as_deref(), Some("struct" | "named_struct" | "row")),
        Expr::Tuple(values) => !values.iter().all(|value| matches!(value, Expr::Value(_))),
        Expr::Struct { .. } | Expr::Dictionary(_) | Expr::Map(_) => true,
        _ => false,
    }
}

fn broken(checked: Result<()>) -> ControlFlow<Box<Error>> {
    checked.map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
}

fn refuse(what: &str, why: &str) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(Error::refused(shown(what), why)))
}

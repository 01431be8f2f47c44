//! Checks of a statement's syntax tree, before it is planned.

use super::super::errors::{did_you_mean, query_error};
use super::super::rewrites::UNARY_MINUS;
use super::allowed_functions;
use crate::error::{Error, Result};
use datafusion::common::config::SqlParserOptions;
use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier,
    Statement, TableAlias, TableFactor, UnaryOperator, Value, Visit, Visitor, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The longest statement in bytes. Long lists of values belong in a table.
const MAX_SQL_BYTES: usize = 64 << 10;
/// The deepest nesting of expressions. Dropping deeper ones would overflow the stack of their thread.
pub(super) const MAX_DEPTH: usize = 500;
/// The maximum number of tables of a plan, with common table expressions expanded. Each table costs planning time and
/// threads.
const MAX_TABLES: u64 = 64;
/// The maximum number of SELECTs of a statement.
const MAX_SELECTS: usize = 256;
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

/// Parses a text of one statement.
pub(in crate::query) fn parse(text: &str, options: &SqlParserOptions) -> Result<Parsed> {
    let dialect = dialect_from_str(options.dialect).ok_or_else(|| Error::query("unknown SQL dialect"))?;
    let parser = DFParserBuilder::new(text).with_dialect(dialect.as_ref());
    let parser = parser.with_recursion_limit(options.recursion_limit.get()).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements()).map_err(query_error)?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(Error::query("no statement: expected one SELECT, WITH, VALUES or EXPLAIN")),
        (Some(_), more) => Err(Error::refused(format!("{} statements", more + 1), "expected one statement")),
    }
}

/// Rejects every statement that does more than read these tables.
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
        return Err(Error::refused(
            what,
            format!("expected at most {MAX_TABLES}, with common table expressions expanded"),
        ));
    }
    Ok(())
}

/// Gives an alias to each derived table without one in the FROM of a query with ORDER BY, so that its columns have a
/// qualifier. Without qualifiers, DataFusion resolves a name in ORDER BY to the input column, even if an output column
/// has it, as in `SELECT m AS k, k AS m FROM (SELECT 1 AS k, 2 AS m) ORDER BY m`. No upstream issue was found.
/// Subqueries in expressions stay as they are, because they may refer to columns of their outer query.
pub(in crate::query) fn name_derived_tables(parsed: &mut Parsed) {
    let statement = match parsed {
        Parsed::Statement(statement) => statement,
        Parsed::Explain(explain) => match explain.statement.as_mut() {
            Parsed::Statement(statement) => statement,
            _ => return,
        },
        _ => return,
    };
    if let Statement::Query(query) = statement.as_mut() {
        name_derived_tables_of(query, &mut 0);
    }
}

fn name_derived_tables_of(query: &mut Query, number: &mut usize) {
    fn of_body(body: &mut SetExpr, is_sorted: bool, number: &mut usize) {
        match body {
            SetExpr::Query(query) => name_derived_tables_of(query, number),
            SetExpr::SetOperation { left, right, .. } => {
                of_body(left, false, number);
                of_body(right, false, number);
            }
            SetExpr::Select(select) => {
                for table in &mut select.from {
                    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
                    for table in std::iter::once(&mut table.relation).chain(joined) {
                        of_table(table, is_sorted, number);
                    }
                }
            }
            _ => {}
        }
    }

    fn of_table(table: &mut TableFactor, is_sorted: bool, number: &mut usize) {
        if let TableFactor::Derived { subquery, alias, .. } = table {
            if alias.is_none() && is_sorted {
                *number += 1;
                let name = Ident::with_quote('"', format!("derived table {number}"));
                *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
            }
            name_derived_tables_of(subquery, number);
        }
    }

    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        name_derived_tables_of(&mut table.query, number);
    }
    let is_sorted = query.order_by.is_some();
    of_body(&mut query.body, is_sorted, number);
}

fn not_a_query(what: &str) -> Error {
    let why = match what.split_whitespace().next().map(str::to_uppercase).as_deref() {
        Some("DESCRIBE" | "DESC" | "SHOW") => {
            "the tables are steps, runs and annotations: `a2store schema ARCHIVE` and archive.schema(\"steps\") list their columns"
        }
        _ => "a query only reads: expected one SELECT, WITH, VALUES or EXPLAIN",
    };
    Error::refused(what, why)
}

/// Rewrites the unary minus, functions of other engines that DataFusion lacks, and functions that return unsigned
/// counts.
///
/// # Errors
/// `arg_max` and its family with OVER, and `count_if` with DISTINCT.
pub(in crate::query) fn replace_functions(parsed: &mut Parsed) -> Result<()> {
    let statement = match parsed {
        Parsed::Statement(statement) => statement,
        Parsed::Explain(explain) => match explain.statement.as_mut() {
            Parsed::Statement(statement) => statement,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let visited = visit_expressions_mut(statement, |expr| {
        match expr {
            Expr::Function(function) => {
                let name = function_name(function);
                replace_function(&name, function)?;
                if UNSIGNED_COUNTS.contains(&name.as_str()) {
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
    });
    match visited {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Functions that return a uint64. A cast to int64 lets differences be negative: `row_number() OVER (…) - 10`.
const UNSIGNED_COUNTS: [&str; 12] = [
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
];

fn as_bigint(expr: Expr) -> Expr {
    let (kind, data_type, array) = (CastKind::Cast, DataType::BigInt(None), false);
    Expr::Cast { kind, expr: Box::new(expr), data_type, array, format: None }
}

/// Returns the name of a function as DataFusion looks it up.
fn function_name(function: &Function) -> String {
    match function.name.0.as_slice() {
        [part] => part.as_ident().map(|name| normalized(&name.value, name.quote_style.is_some())).unwrap_or_default(),
        _ => String::new(),
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

/// The tables and common table expressions of a statement, collected while its syntax tree is visited.
#[derive(Default)]
struct Scope<'a> {
    tables: &'a [&'a str],
    /// The relations in FROM of the statement (`used`) and of each common table expression (`made`). A number is
    /// a common table expression, and `None` is a table.
    used: Vec<Option<usize>>,
    made: Vec<Vec<Option<usize>>>,
    /// The queries of common table expressions that have not been visited yet, by address.
    bodies: HashMap<*const Query, usize>,
    /// The common table expressions that enclose the current node.
    open: Vec<(*const Query, usize)>,
    /// The names that are visible at the current node, from the outermost WITH to the innermost.
    names: Vec<(*const Query, HashMap<String, usize>)>,
    num_selects: usize,
    /// The number of expressions that enclose the current node.
    depth: usize,
}

impl Scope<'_> {
    fn use_table(&mut self, table: Option<usize>) {
        match self.open.last() {
            Some(&(_, body)) => self.made[body].push(table),
            None => self.used.push(table),
        }
    }

    /// Returns the innermost common table expression of this name that does not enclose the current node.
    fn made_as(&self, name: &str) -> Option<usize> {
        let is_open = |body: &usize| self.open.iter().any(|(_, open)| open == body);
        self.names.iter().rev().find_map(|(_, names)| names.get(name).copied().filter(|body| !is_open(body)))
    }

    /// Returns the number of tables. Each use of a common table expression counts all tables that it uses.
    fn num_tables(&self) -> u64 {
        fn weight(scope: &Scope<'_>, table: Option<usize>, known: &mut [Option<u64>]) -> u64 {
            let Some(body) = table else { return 1 };
            if let Some(weight) = known[body] {
                return weight;
            }
            // The planner rejects recursion, so any value is fine here.
            known[body] = Some(1);
            let uses = scope.made[body].iter();
            let sum = uses.fold(1_u64, |sum, &used| sum.saturating_add(weight(scope, used, known)));
            known[body] = Some(sum);
            sum
        }
        let mut known = vec![None; self.made.len()];
        // Unused common table expressions are planned too.
        let is_used =
            |body: &usize| self.used.iter().chain(self.made.iter().flatten()).any(|used| *used == Some(*body));
        let unused = (0..self.made.len()).filter(|body| !is_used(body)).map(Some);
        let all = self.used.iter().copied().chain(unused);
        all.fold(0_u64, |sum, table| sum.saturating_add(weight(self, table, &mut known)))
    }
}

impl Visitor for Scope<'_> {
    type Break = Box<Error>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Box<Error>> {
        match statement {
            Statement::Query(_) => ControlFlow::Continue(()),
            other => refuse(&first_words(&other.to_string()), "a query only reads"),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        if let Some(body) = self.bodies.remove(&std::ptr::from_ref(query)) {
            self.open.push((query, body));
        }
        if let Some(with) = &query.with {
            if with.recursive {
                return refuse("WITH RECURSIVE", "it may never end");
            }
            let mut names = HashMap::new();
            for table in &with.cte_tables {
                let name = normalized(&table.alias.name.value, table.alias.name.quote_style.is_some());
                self.bodies.insert(table.query.as_ref(), self.made.len());
                names.insert(name, self.made.len());
                self.made.push(Vec::new());
            }
            self.names.push((query, names));
        }
        if let Some(name) = ambiguous_order(query) {
            let why = "a result column and a column that GROUP BY casts have this name: rename the result column";
            return refuse(&format!("ORDER BY {name}"), why);
        }
        if let Some(operator) = multiset_operation(&query.body) {
            let why = "the engine does not count equal rows: number them with row_number() and leave ALL out";
            return refuse(&format!("{operator} ALL"), why);
        }
        if !query.locks.is_empty() {
            return refuse("FOR UPDATE", "a query only reads, so it needs no locks");
        }
        if query.settings.is_some() {
            return refuse("SETTINGS", "a query cannot configure the engine");
        }
        if query.format_clause.is_some() || query.for_clause.is_some() {
            return refuse("FORMAT", "results are always Arrow");
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        self.open.pop_if(|(body, _)| std::ptr::eq(*body, query));
        self.names.pop_if(|(with, _)| std::ptr::eq(*with, query));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<Error>> {
        self.num_selects += 1;
        if self.num_selects > MAX_SELECTS {
            return refuse("the statement", &format!("it has more than {MAX_SELECTS} SELECTs"));
        }
        check_joins(select.from.iter().flat_map(|table| &table.joins))?;
        match &select.into {
            Some(into) => refuse(&into.to_string(), "a query only reads"),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Box<Error>> {
        match table {
            TableFactor::Table { name, args, sample, version, .. } => {
                if args.is_some() {
                    return refuse(&format!("the table function {name}"), "a query only reads the given tables");
                }
                if sample.is_some() {
                    return refuse("TABLESAMPLE", "it is not supported: use a condition such as random() < 0.1");
                }
                if version.is_some() {
                    return refuse("a table's version", "open the archive at that version instead");
                }
                self.use_relation(name)
            }
            TableFactor::Derived { sample: Some(_), .. } => {
                refuse("TABLESAMPLE", "it is not supported: use a condition such as random() < 0.1")
            }
            TableFactor::Function { name, .. } => {
                refuse(&format!("the table function {name}"), "a query only reads the given tables")
            }
            TableFactor::NestedJoin { table_with_joins, .. } => check_joins(&table_with_joins.joins),
            TableFactor::Derived { .. } | TableFactor::UNNEST { .. } => ControlFlow::Continue(()),
            other => refuse(&first_words(&other.to_string()), "a query only reads the given tables"),
        }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<Box<Error>> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let why = format!("expressions are nested more than {MAX_DEPTH} deep");
            return refuse("the statement", &why);
        }
        match expr {
            // The parser takes everything that follows as the right operand.
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) if is_and_or(right) => {
                return refuse("IS DISTINCT FROM beside AND or OR", "put it in parentheses");
            }
            Expr::InSubquery { expr, .. } if matches!(expr.as_ref(), Expr::Tuple(_)) => {
                let why =
                    "DataFusion compares one column: write EXISTS (SELECT 1 FROM … WHERE x = a AND y = b), or a join";
                return refuse("(a, b) IN (SELECT …)", why);
            }
            Expr::Cube(columns) if columns.len() > MAX_CUBE => {
                return refuse("CUBE", &format!("it has {} columns, expected at most {MAX_CUBE}", columns.len()));
            }
            Expr::GroupingSets(sets) | Expr::Rollup(sets) if sets.len() > 1 << MAX_CUBE => {
                return refuse("GROUPING SETS", &format!("expected at most {} groupings", 1 << MAX_CUBE));
            }
            _ => {}
        }
        let variable = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.first(),
            _ => None,
        };
        if let Some(name) = variable.filter(|name| name.value.starts_with('@')) {
            return refuse(&format!("the variable {name}"), "a query cannot read the engine's settings");
        }
        if let Expr::Function(function) = expr {
            let name = function.name.to_string().to_ascii_lowercase();
            if let Some(why) = allowed_functions::why_excluded(name.trim_matches('"')) {
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
            return refuse(&format!("the table {name}"), &self.what_there_is(None));
        };
        let known = normalized(&identifier.value, identifier.quote_style.is_some());
        let made = self.made_as(&known);
        if made.is_none() && !self.tables.contains(&known.as_str()) {
            return refuse(&format!("the table {name}"), &self.what_there_is(Some(&known)));
        }
        self.use_table(made);
        ControlFlow::Continue(())
    }

    fn what_there_is(&self, asked: Option<&str>) -> String {
        // A name that is not in lower case needs quotes.
        let as_written = |name: &&str| if *name == name.to_lowercase() { (*name).into() } else { format!("{name:?}") };
        let names: Vec<String> = self.tables.iter().map(as_written).collect();
        let hint = asked.map(|asked| did_you_mean(asked, names.iter().map(String::as_str))).unwrap_or_default();
        format!("a query only reads these tables: {}{hint}", names.join(", "))
    }
}

/// Returns a name in ORDER BY that DataFusion resolves to the wrong column. It names `CAST(x AS …)` in GROUP BY
/// like `x`, and prefers that to a result column.
fn ambiguous_order(query: &Query) -> Option<String> {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else { return None };
    let (GroupByExpr::Expressions(keys, _), OrderByKind::Expressions(order)) = (&select.group_by, &order.kind) else {
        return None;
    };
    let is_cast = |name: &str| keys.iter().any(|key| cast_column(key).is_some_and(|column| column == name));
    let names = order.iter().filter_map(|key| match &key.expr {
        Expr::Identifier(name) => Some(normalized(&name.value, name.quote_style.is_some())),
        _ => None,
    });
    let is_alias_of_another = |name: &str| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                normalized(&alias.value, alias.quote_style.is_some()) == name
                    && cast_column(expr).is_none_or(|column| column != name)
            }
            _ => false,
        })
    };
    names.into_iter().find(|name| is_cast(name) && is_alias_of_another(name))
}

/// Returns the column inside nested casts.
fn cast_column(expr: &Expr) -> Option<String> {
    fn column(expr: &Expr) -> Option<String> {
        match expr {
            Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => column(inner),
            Expr::Identifier(name) => Some(normalized(&name.value, name.quote_style.is_some())),
            Expr::CompoundIdentifier(names) => {
                names.last().map(|name| normalized(&name.value, name.quote_style.is_some()))
            }
            _ => None,
        }
    }
    match expr {
        Expr::Nested(inner) => cast_column(inner),
        Expr::Cast { expr: inner, .. } => column(inner),
        _ => None,
    }
}

/// Finds INTERSECT ALL or EXCEPT ALL in the body of a query.
fn multiset_operation(body: &SetExpr) -> Option<SetOperator> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return None };
    let keeps_equal_rows = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    let is_refused = keeps_equal_rows && !matches!(op, SetOperator::Union);
    is_refused.then_some(*op).or_else(|| multiset_operation(left)).or_else(|| multiset_operation(right))
}

/// Rejects RIGHT and FULL joins with USING or NATURAL.
fn check_joins<'a>(joins: impl IntoIterator<Item = &'a Join>) -> ControlFlow<Box<Error>> {
    for join in joins {
        let (constraint, kind) = match &join.join_operator {
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (constraint, "RIGHT"),
            JoinOperator::FullOuter(constraint) => (constraint, "FULL"),
            _ => continue,
        };
        let what = match constraint {
            JoinConstraint::Using(_) => format!("{kind} JOIN … USING"),
            JoinConstraint::Natural => format!("NATURAL {kind} JOIN"),
            _ => continue,
        };
        let why = "DataFusion takes the key from the left table, where it may be null (apache/datafusion#22881): \
                   write ON, and coalesce(a.key, b.key)";
        return refuse(&what, why);
    }
    ControlFlow::Continue(())
}

fn is_and_or(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. })
}

/// Returns a name as DataFusion compares it.
fn normalized(name: &str, is_quoted: bool) -> String {
    if is_quoted { name.to_owned() } else { name.to_lowercase() }
}

fn refuse(what: &str, why: &str) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(Error::refused(shown(what), why)))
}

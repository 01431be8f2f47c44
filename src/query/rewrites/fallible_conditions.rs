//! Evaluation of conditions that can fail, only for the rows that pass the other conditions.
//!
//! DataFusion evaluates both sides of an AND or OR for whole batches, and turns a CASE of booleans into ANDs
//! and ORs. So `num_steps > 0 AND max_score / num_steps > 9` fails for rows without steps unless they are rare.
//! This module wraps operands that can fail in a CASE, which evaluates them only for the rows that need them.
//! It runs after all other rules, because the simplifier would undo it.
//!
//! An analyzer rule first moves the operands that can fail to the end. This matters because the optimizer computes
//! common subexpressions for every row if the first operand of an AND contains one.
//!
//! SQL leaves the order of evaluation open, so there is no upstream issue.

use super::columns::{input_schema, map_expressions};
use crate::query::functions::functions;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction_owned};
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Filter, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

/// Columns of `steps` and `runs` whose values are always valid arguments of board functions.
const BOARD_COLUMNS: [&str; 8] = ["board", "move", "max_exp", "ev_up", "ev_down", "ev_left", "ev_right", "final_board"];

/// DataFusion's functions that fail for some argument values.
const CAN_FAIL: [&str; 33] = [
    "abs",
    "array_distance",
    "array_position",
    "arrow_cast",
    "cosine_distance",
    "inner_product",
    "array_slice",
    "chr",
    "date_bin",
    "date_part",
    "date_trunc",
    "factorial",
    "from_unixtime",
    "gcd",
    "lcm",
    "log",
    "lpad",
    "make_date",
    "make_time",
    "overlay",
    "power",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "rpad",
    "split_part",
    "substr",
    "to_char",
    "to_date",
    "to_time",
    "to_unixtime",
];

/// Moves the operands of AND and OR that can fail to the end.
#[derive(Debug)]
pub(in crate::query) struct FallibleLast;

impl AnalyzerRule for FallibleLast {
    fn name(&self) -> &'static str {
        "fallible_last"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            map_expressions(node, |expr| fallible_last(expr, &schema))
        })?;
        Ok(rewritten.data)
    }
}

fn fallible_last(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    if !can_fail(&expr, schema) {
        return Ok(Transformed::no(expr));
    }
    let op = match &expr {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => binary.op,
        _ => return expr.map_children(|child| fallible_last(child, schema)),
    };
    let (fallible, mut all): (Vec<Expr>, Vec<Expr>) =
        sides(expr, op).into_iter().partition(|side| can_fail(side, schema));
    for side in fallible {
        all.push(fallible_last(side, schema)?.data);
    }
    let joined = if op == Operator::And { conjunction(all) } else { disjunction(all) };
    Ok(Transformed::yes(joined.unwrap_or_else(|| lit(op == Operator::And))))
}

/// Guards the conditions of a fully optimized plan.
pub(in crate::query) fn guard_fallible(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let rewritten = plan.transform_down_with_subqueries(|node| {
        let schema = input_schema(&node);
        match node {
            LogicalPlan::Filter(filter) => {
                let predicate = guarded_conjunction(split_conjunction_owned(filter.predicate), &schema)?;
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
            }
            // `ArchiveTable` has already chosen these filters.
            LogicalPlan::TableScan(_) => Ok(Transformed::no(node)),
            node => map_expressions(node, |expr| guarded(expr, &schema)),
        }
    })?;
    Ok(rewritten.data)
}

/// Joins filters with AND. Filters that can fail come last and see only the rows that pass all filters before
/// them.
///
/// The other filters also stand outside the CASE, so that statistics can prune by them.
pub(in crate::query) fn guarded_conjunction(filters: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<Expr> {
    let (fallible, mut all): (Vec<Expr>, Vec<Expr>) = filters.into_iter().partition(|filter| can_fail(filter, schema));
    let mut last: Option<Expr> = None;
    for filter in fallible.into_iter().rev() {
        let filter = guarded(filter, schema)?.data;
        last = Some(match last {
            Some(next) => case(filter, next, lit(false)),
            None => filter,
        });
    }
    if let Some(last) = last {
        let guarded = match conjunction(all.iter().filter(|side| !side.is_volatile()).cloned()) {
            Some(before) => case(before, last, lit(false)),
            None => last,
        };
        all.push(guarded);
    }
    Ok(conjunction(all).unwrap_or_else(|| lit(true)))
}

/// Wraps the operands of AND and OR that can fail in a CASE on the other operands.
///
/// The result is at most twice as large, because only operands that cannot fail are repeated.
fn guarded(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    if !can_fail(&expr, schema) {
        return Ok(Transformed::no(expr));
    }
    let op = match &expr {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => binary.op,
        _ => return expr.map_children(|child| guarded(child, schema)),
    };
    let (fallible, safe): (Vec<Expr>, Vec<Expr>) = sides(expr, op).into_iter().partition(|side| can_fail(side, schema));
    let fallible = fallible.into_iter().map(|side| Ok(guarded(side, schema)?.data));
    let fallible = fallible.collect::<DataFusionResult<Vec<_>>>()?;
    let join = |sides: Vec<Expr>| if op == Operator::And { conjunction(sides) } else { disjunction(sides) };
    let all = join(safe.iter().cloned().chain(fallible).collect()).unwrap_or_else(|| lit(op == Operator::And));
    // If the safe operands are false (AND) or true (OR), they determine the result; if they are null, they do not.
    // Volatile operands are evaluated once.
    let deciding = safe.into_iter().filter(|side| !side.is_volatile()).collect();
    Ok(Transformed::yes(match (join(deciding), op) {
        (None, _) => all,
        (Some(safe), Operator::And) => case(safe.is_not_false(), all, lit(false)),
        (Some(safe), _) => case(safe.is_not_true(), all, lit(true)),
    }))
}

/// Returns the operands of a chain of one operator, from left to right.
fn sides(expr: Expr, op: Operator) -> Vec<Expr> {
    let (mut waiting, mut sides) = (vec![expr], Vec::new());
    while let Some(expr) = waiting.pop() {
        match expr {
            Expr::BinaryExpr(binary) if binary.op == op => waiting.extend([*binary.right, *binary.left]),
            other => sides.push(other),
        }
    }
    sides
}

fn case(when: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(when), Box::new(then))], Some(Box::new(otherwise))))
}

/// Returns whether an expression fails for some values of its columns.
pub(in crate::query) fn can_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let mut found = false;
    let visited = expr.apply(|part| {
        found = found || part_can_fail(part, schema);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || visited.is_err()
}

fn part_can_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let dtype = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
    match expr {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Divide | Operator::Modulo) => {
            !dtype(&binary.left).is_floating() && !dtype(&binary.right).is_floating() && !is_safe_divisor(&binary.right)
        }
        Expr::BinaryExpr(binary) => is_regex(binary.op),
        Expr::SimilarTo(_) => true,
        Expr::Negative(inner) => dtype(inner).is_signed_integer(),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(value, _) => value.cast_to(cast.field.data_type()).is_err(),
            inner => !always_casts(&dtype(inner), cast.field.data_type()),
        },
        Expr::ScalarFunction(function) => {
            let name = function.func.name();
            let is_plain = |arg: &Expr| match arg {
                Expr::Column(column) => BOARD_COLUMNS.contains(&column.name()),
                arg => matches!(arg, Expr::Literal(..)),
            };
            let is_ours = || functions().iter().any(|function| function.name == name);
            CAN_FAIL.contains(&name)
                || name.starts_with("to_timestamp")
                || !function.args.iter().all(is_plain) && is_ours()
        }
        _ => false,
    }
}

/// Returns whether every integer can be divided by an expression. True for a literal other than 0 and -1,
/// because the least integer divided by -1 overflows.
fn is_safe_divisor(expr: &Expr) -> bool {
    let literal = match expr {
        Expr::Literal(value, _) => value.cast_to(&DataType::Int64).ok(),
        Expr::Cast(cast) => return is_safe_divisor(&cast.expr),
        _ => None,
    };
    matches!(literal, Some(ScalarValue::Int64(Some(number))) if number != 0 && number != -1)
}

fn is_regex(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

/// Returns whether every value of one type can be cast to another.
pub(super) fn always_casts(from: &DataType, to: &DataType) -> bool {
    fn plain(dtype: &DataType) -> &DataType {
        if let DataType::Dictionary(_, values) = dtype { plain(values) } else { dtype }
    }
    let (from, to) = (plain(from), plain(to));
    if from == to || to.is_string() || *from == DataType::Null {
        return true;
    }
    let bits = |dtype: &DataType| dtype.primitive_width().map_or(0, |bytes| 8 * bytes as u32);
    match (from, to) {
        (DataType::Boolean, to) => to.is_numeric(),
        (from, to) if from.is_unsigned_integer() && to.is_unsigned_integer() => bits(to) >= bits(from),
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => bits(to) >= bits(from),
        (from, to) if from.is_unsigned_integer() && to.is_signed_integer() => bits(to) > bits(from),
        (from, to) if from.is_integer() && to.is_floating() => *to != DataType::Float16,
        (from, DataType::Decimal128(precision, scale)) if from.is_integer() => {
            i16::from(*precision) - i16::from(*scale) >= 20
        }
        (from, to) => from.is_floating() && to.is_floating() && bits(to) >= bits(from),
    }
}

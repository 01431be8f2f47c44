//! Evaluates expressions that can fail only for rows that the other conditions leave.
//!
//! The engine evaluates both sides of an AND or OR for whole batches, and turns a CASE of booleans into ANDs and ORs.
//! So `num_steps > 0 AND max_score / num_steps > 9` fails for rows without steps unless they are rare. This module
//! wraps operands that can fail in a CASE, which evaluates them only for the rows that need them. It runs after all
//! other rules, because the simplifier would undo it.

use super::functions::functions;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Filter, LogicalPlan, Operator, lit};

/// Engine functions that fail for some values of their arguments.
const CAN_FAIL: [&str; 29] = [
    "abs",
    "arrow_cast",
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

/// Rewrites a fully optimized plan.
pub(super) fn guard_fallible(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let rewritten = plan.transform_down_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        node.inputs().into_iter().for_each(|input| schema.merge(input.schema()));
        match node {
            LogicalPlan::Filter(filter) => {
                let predicate = guarded_conjunction(split_conjunction_owned(filter.predicate), &schema)?;
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
            }
            // The table itself has chosen these filters.
            LogicalPlan::TableScan(_) => Ok(Transformed::no(node)),
            node => {
                let names = NamePreserver::new(&node);
                node.map_expressions(|expr| {
                    let name = names.save(&expr);
                    Ok(guarded(expr, &schema)?.update_data(|expr| name.restore(expr)))
                })
            }
        }
    })?;
    Ok(rewritten.data)
}

/// The conjunction of filters. Filters that can fail come last, and see only rows that pass all filters before them.
pub(super) fn guarded_conjunction(filters: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<Expr> {
    let (fallible, mut all): (Vec<Expr>, Vec<Expr>) = filters.into_iter().partition(|filter| can_fail(filter, schema));
    for filter in fallible {
        let filter = guarded(filter, schema)?.data;
        let guarded = match conjunction(all.clone()) {
            Some(before) => case(before, filter, lit(false)),
            None => filter,
        };
        all.push(guarded);
    }
    Ok(conjunction(all).unwrap_or_else(|| lit(true)))
}

/// Wraps each right side of an AND or OR that can fail in a CASE.
fn guarded(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::BinaryExpr(binary)
            if matches!(binary.op, Operator::And | Operator::Or) && can_fail(&binary.right, schema) =>
        {
            let left = (*binary.left).clone();
            // The left side decides alone only if it is false (AND) or true (OR), but not if it is null.
            Ok(Transformed::yes(match binary.op {
                Operator::And => case(left.is_not_false(), Expr::BinaryExpr(binary), lit(false)),
                _ => case(left.is_not_true(), Expr::BinaryExpr(binary), lit(true)),
            }))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn case(when: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(when), Box::new(then))], Some(Box::new(otherwise))))
}

/// Whether an expression fails for some values of its columns.
pub(super) fn can_fail(expr: &Expr, schema: &DFSchema) -> bool {
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
            !dtype(&binary.left).is_floating() && !dtype(&binary.right).is_floating()
        }
        Expr::Negative(inner) => dtype(inner).is_signed_integer(),
        Expr::Cast(cast) => !always_casts(&dtype(&cast.expr), cast.field.data_type()),
        Expr::ScalarFunction(function) => {
            let name = function.func.name();
            let is_plain = |arg: &Expr| matches!(arg, Expr::Column(_) | Expr::Literal(..));
            let is_ours = || functions().iter().any(|function| function.name == name);
            CAN_FAIL.contains(&name)
                || name.starts_with("to_timestamp")
                || !function.args.iter().all(is_plain) && is_ours()
        }
        _ => false,
    }
}

/// Whether every value of one type can be cast to another.
fn always_casts(from: &DataType, to: &DataType) -> bool {
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

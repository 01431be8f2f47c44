//! GROUP BY on one number instead of several columns.
//!
//! DataFusion groups by one number faster than by several columns. It is slowest for dictionaries, which it
//! converts to row format. So text dictionaries are encoded as numbers (`text_numbers.rs`), and as many keys as fit are
//! packed into one 64-bit number (`packed_keys.rs`). A projection above the aggregate decodes the keys of the groups,
//! which are few.

use super::packed_keys::{self, KeyLayout};
use super::text_numbers::{self, TextDictionary};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use std::sync::Arc;

/// Rewrites the aggregates of a fully optimized plan. No rule of DataFusion may run after it.
pub(in crate::query) fn group_by_numbers(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let mut num_groups = 0;
    Ok(plan.transform_down_with_subqueries(|plan| rewrite(plan, &mut num_groups))?.data)
}

fn rewrite(plan: LogicalPlan, num_groups: &mut usize) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => group(aggregate, num_groups),
        // `DISTINCT … LIMIT` stops early only on plain keys, so leave it alone.
        LogicalPlan::Limit(limit) if is_distinct(&limit.input) => {
            Ok(Transformed::new(LogicalPlan::Limit(limit), false, TreeNodeRecursion::Jump))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn is_distinct(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.is_empty())
}

fn group(aggregate: Aggregate, num_groups: &mut usize) -> DataFusionResult<Transformed<LogicalPlan>> {
    let keys = GroupKeys::of(&aggregate);
    if keys.texts.is_none() && keys.layout.is_none() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    *num_groups += 1;
    // DataFusion looks up columns by name across nodes, so the name must be unique.
    let number = format!("a2store: number of keys {num_groups}");
    let text_number = |key: usize| format!("{number}.{key}");
    let (mut grouped, mut packed) = (Vec::new(), Vec::new());
    for (i, (expr, field)) in group_expr.into_iter().zip(schema.fields()).enumerate() {
        let expr = match &keys.texts {
            Some(texts) if keys.is_text(i) => texts.to_number(expr, field, &text_number(i)),
            _ => expr,
        };
        if keys.is_packed(i) {
            packed.push(expr);
        } else {
            grouped.push(if keys.is_text(i) { expr.alias(text_number(i)) } else { expr });
        }
    }
    if let Some(layout) = &keys.layout {
        grouped.insert(0, layout.pack(packed, &number));
    }
    let columns = schema.iter().enumerate().map(|(i, (relation, field))| {
        let key = match keys.layout.as_ref().and_then(|layout| layout.unpack(i, &number)) {
            Some(key) => key,
            None if keys.is_text(i) => Expr::Column(Column::new_unqualified(text_number(i))),
            None => return Expr::Column(Column::new(relation.cloned(), field.name())),
        };
        let key = match &keys.texts {
            Some(texts) if keys.is_text(i) => texts.to_text(key, field, &text_number(i)),
            _ => key,
        };
        key.alias_qualified(relation.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, grouped, aggr_expr)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(grouped))?)))
}

/// The encoding of an aggregate's keys.
struct GroupKeys {
    is_text: Vec<bool>,
    texts: Option<Arc<TextDictionary>>,
    layout: Option<KeyLayout>,
}

impl GroupKeys {
    fn of(aggregate: &Aggregate) -> GroupKeys {
        let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        let keys: &[Expr] = if has_sets { &[] } else { &aggregate.group_expr };
        let fields: Vec<&FieldRef> = aggregate.schema.fields().iter().take(keys.len()).collect();
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let is_text: Vec<bool> = fields.iter().map(|field| *field.data_type() == text).collect();
        let texts = is_text.contains(&true).then(Arc::default);
        let number = |(field, is_text): (&&FieldRef, &bool)| {
            if *is_text {
                (text_numbers::number_field(field), Some(text_numbers::NUMBER_BITS))
            } else {
                ((*field).clone(), packed_keys::width(field.data_type()))
            }
        };
        let layout = KeyLayout::of(fields.iter().zip(&is_text).map(number));
        GroupKeys { is_text, texts, layout }
    }

    fn is_text(&self, key: usize) -> bool {
        self.is_text.get(key) == Some(&true)
    }

    fn is_packed(&self, key: usize) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.has(key))
    }
}

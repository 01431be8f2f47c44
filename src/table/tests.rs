//! The kernels against their naive twins: every width, alignment, tail and repeated index.

use crate::board::{Move, Symmetry, WideBoard};
use crate::step::{STEP_SIZE, Step};
use crate::system::registers::Level;
use crate::table::gather::arena::Arena;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers, ColumnSource};
use crate::table::gather::symmetry::SymmetryKey;
use crate::table::gather::take::{RowSymmetries, TableRows, are_below, gather, gather_part};
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::StepColumn;
use proptest::prelude::*;

const WIDTHS: [ElementType; 6] = [
    ElementType::UInt8,
    ElementType::Bool,
    ElementType::Float16,
    ElementType::Int32,
    ElementType::Float64,
    ElementType::UInt64,
];

fn step_columns() -> Vec<&'static str> {
    StepColumn::BATCH.into_iter().map(|column| column.shape(ElementType::UInt8).0).collect()
}

fn layout(extras: &[ElementType]) -> RowLayout {
    // Every second column has several values per row.
    let field = |(k, &dtype): (usize, &ElementType)| ExtraField::new(&format!("extra{k}"), dtype, 1 + k % 2 * (k + 2));
    RowLayout::new(extras.iter().enumerate().map(field).collect())
}

/// Returns random rows. Any bytes are a valid row, except that the mask has four bits and the move is a move or
/// 255.
fn rows(num_rows: usize, stride: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    })
    .take(num_rows * stride)
    .collect();
    for (k, row) in bytes.chunks_exact_mut(stride).enumerate() {
        row[30] = if k % 5 == 0 { 255 } else { row[30] & 3 };
        row[31] &= 15;
    }
    bytes
}

fn filled(schema: &BatchSchema, num_rows: usize, fill: impl FnOnce(ColumnBuffers<'_>)) -> Vec<Vec<u8>> {
    let mut arena = Arena::new(schema, num_rows + 3).unwrap();
    fill(arena.columns_mut(schema, num_rows));
    arena.columns_mut(schema, num_rows).into_iter().map(|column| column.to_vec()).collect()
}

/// Does the same as [`gather`] naively.
fn naive(
    rows: TableRows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: ColumnBuffers<'_>,
    symmetries: RowSymmetries<'_>,
) {
    for (spec, column) in schema.columns.iter().zip(columns) {
        for (k, (&index, out)) in indices.iter().zip(column.chunks_exact_mut(spec.width())).enumerate() {
            let row = rows.at(index);
            let mut step: Step = bytemuck::pod_read_unaligned(&row[..STEP_SIZE]);
            let mut wide = schema
                .mask_offset
                .and_then(|offset| WideBoard::new(step.board, bytemuck::pod_read_unaligned(&row[offset..][..2])).ok());
            if let Some((key, ids)) = symmetries {
                step = naive_turn(key.symmetry_of(ids[k]), step);
                wide = wide.map(|board| board.transform(key.symmetry_of(ids[k])));
            }
            let value: Vec<u8> = match (spec.source, wide) {
                (ColumnSource::Step(StepColumn::Tokens), Some(board)) => {
                    let tokens = board.exps().into_iter().map(u64::from);
                    tokens.flat_map(|exp| exp.to_le_bytes().into_iter().take(spec.dtype.width())).collect()
                }
                (ColumnSource::Extra(offset), Some(board)) if Some(offset) == schema.mask_offset => {
                    board.tile_65536_mask().to_le_bytes().to_vec()
                }
                (source, _) => match source {
                    ColumnSource::Step(column) => naive_values(column, &step, spec.dtype),
                    ColumnSource::Extra(offset) => row[offset..offset + spec.width()].to_vec(),
                    ColumnSource::Attached(number) => {
                        let mut values = vec![0; spec.width()];
                        rows.attached[number].gather(&[index], 0..1, &mut values);
                        values
                    }
                },
            };
            out.copy_from_slice(&value);
        }
    }
}

/// Returns a step's values as bytes.
fn naive_values(column: StepColumn, step: &Step, dtype: ElementType) -> Vec<u8> {
    match column {
        StepColumn::Tokens => {
            let cells = (0..16).map(|cell| step.board.0 >> (60 - 4 * cell) & 15);
            cells.flat_map(|exp| exp.to_le_bytes().into_iter().take(dtype.width())).collect()
        }
        StepColumn::Move => vec![step.chosen],
        StepColumn::EvValues => step.ev_values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        StepColumn::EvLegal => (0..4).map(|bit| step.ev_legal >> bit & 1).collect(),
        StepColumn::RunId => step.run_id.to_le_bytes().to_vec(),
        StepColumn::StepIndex => step.step_index.to_le_bytes().to_vec(),
        StepColumn::Board => step.board.0.to_le_bytes().to_vec(),
        StepColumn::EvLegalMask => vec![step.ev_legal],
    }
}

/// Turns a row naively, cell by cell and move by move.
fn naive_turn(symmetry: Symmetry, step: Step) -> Step {
    let mut turned = step;
    turned.board = step.board.transform(symmetry);
    turned.ev_legal = 0;
    for direction in Move::ALL {
        let image = symmetry.apply_to_move(direction);
        turned.ev_values[image as usize] = step.ev_values[direction as usize];
        if step.ev_legal & direction.bit() != 0 {
            turned.ev_legal |= image.bit();
        }
        if step.chosen == direction as u8 {
            turned.chosen = image as u8;
        }
    }
    turned
}

proptest! {
    #[test]
    fn kernels_agree_with_the_naive_loop(
        extras in prop::collection::vec(prop::sample::select(&WIDTHS), 0..5),
        tokens in prop::sample::select(vec![ElementType::UInt8, ElementType::Int32, ElementType::Int64]),
        num_rows in 1usize..400,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        columns in prop::option::of(prop::sample::subsequence(
            step_columns().into_iter().chain(["extra0", "extra1"]).collect::<Vec<_>>(), 1..9)),
        symmetries in any::<Option<u64>>(),
        misaligned in 0usize..8,
        seed in any::<u64>(),
    ) {
        let layout = layout(&extras);
        let stride = layout.stride();
        let memory = [vec![0; misaligned], rows(num_rows, stride, seed)].concat();
        let rows = TableRows { bytes: &memory[misaligned..], stride, attached: &[] };
        let has = |name: &&str| !name.starts_with("extra") || layout.extra(name).is_some();
        let columns = columns.map(|names| names.into_iter().filter(has).map(str::to_owned).collect::<Vec<String>>());
        let schema = BatchSchema::new(&layout, Vec::new(), tokens, columns.as_deref()).unwrap();
        let indices: Vec<u64> = picks.iter().map(|pick| pick.index(num_rows) as u64).collect();
        let ids: Vec<u64> = indices.iter().map(|index| index ^ seed).collect();
        let turns = symmetries.map(|seed| (SymmetryKey::new(seed, 3), ids.as_slice()));
        let slow = filled(&schema, indices.len(), |columns| naive(rows, &indices, &schema, columns, turns));
        // Tests every level, not only the one that this processor would choose.
        for level in Level::all() {
            let fast = filled(&schema, indices.len(), |columns| {
                gather_part(level, rows, &indices, &schema, columns, turns);
            });
            prop_assert_eq!(&fast, &slow, "{:?}", level);
        }
    }
}

proptest! {
    #[test]
    fn tiles_of_65536_become_tokens(
        tokens in prop::sample::select(vec![ElementType::UInt8, ElementType::Int32, ElementType::Int64]),
        columns in prop::option::of(prop::sample::subsequence(
            step_columns().into_iter().chain(["tile_65536_mask"]).collect::<Vec<_>>(), 1..8)),
        symmetries in any::<Option<u64>>(),
        seed in any::<u64>(),
    ) {
        let layout = RowLayout::new(vec![ExtraField::new("tile_65536_mask", ElementType::UInt16, 1)]);
        let mut memory = rows(300, layout.stride(), seed);
        for (k, row) in memory.chunks_exact_mut(layout.stride()).enumerate() {
            // All cells that may be marked are 15. Most rows have no mask, and some have one that does not fit.
            let mask: u16 = if k % 3 == 0 { u16::from_le_bytes([row[0], row[1]]) } else { 0 };
            let nibbles = (0..16).fold(0_u64, |all, cell| all << 4 | (u64::from(mask >> cell & 1) * 15));
            let board = u64::from_le_bytes(row[..8].try_into().unwrap()) | if k % 7 == 0 { 0 } else { nibbles };
            row[..8].copy_from_slice(&board.to_le_bytes());
            row[32..34].copy_from_slice(&mask.to_le_bytes());
        }
        let rows = TableRows { bytes: &memory, stride: layout.stride(), attached: &[] };
        let columns = columns.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<String>>());
        let schema = BatchSchema::new(&layout, Vec::new(), tokens, columns.as_deref()).unwrap();
        let indices: Vec<u64> = (0..300).rev().collect();
        let ids: Vec<u64> = indices.iter().map(|index| index ^ seed).collect();
        let turns = symmetries.map(|seed| (SymmetryKey::new(seed, 3), ids.as_slice()));
        let slow = filled(&schema, indices.len(), |columns| naive(rows, &indices, &schema, columns, turns));
        for level in Level::all() {
            let fast = filled(&schema, indices.len(), |columns| {
                gather_part(level, rows, &indices, &schema, columns, turns);
            });
            prop_assert_eq!(&fast, &slow, "{:?}", level);
        }
    }
}

/// Steps without extra columns have a separate loop, which prefetches if there are more than 128 indices.
#[test]
fn gathers_bare_steps() {
    let layout = layout(&[]);
    // Other than bytes, steps are aligned.
    let steps: Vec<Step> = bytemuck::pod_collect_to_vec(&rows(1000, STEP_SIZE, 7));
    let rows = TableRows { bytes: bytemuck::cast_slice(&steps), stride: STEP_SIZE, attached: &[] };
    for tokens in [ElementType::UInt8, ElementType::Int32, ElementType::Int64] {
        let schema = BatchSchema::new(&layout, Vec::new(), tokens, None).unwrap();
        for num_indices in [0, 1, 127, 128, 129, 130, 5000] {
            let indices: Vec<u64> = (0..num_indices).map(|i| i * 7919 % 1000).collect();
            let slow = filled(&schema, indices.len(), |columns| naive(rows, &indices, &schema, columns, None));
            for level in Level::all() {
                let fast = filled(&schema, indices.len(), |columns| {
                    gather_part(level, rows, &indices, &schema, columns, None);
                });
                assert_eq!(fast, slow, "{level:?}, {num_indices} indices");
            }
        }
    }
}

#[test]
fn indices_below_a_length() {
    let edges = [0, 1, 4, 5, 6, (1 << 63) - 2, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for len in edges.into_iter().filter(|len| len >> 63 == 0) {
        for index in edges {
            let is_below = index < len;
            assert_eq!(are_below(&[index], len), is_below, "{index} below {len}");
            assert_eq!(are_below(&[0, index, 0], len), is_below && len > 0, "{index} below {len}");
        }
        assert!(are_below(&[], len));
    }
}

/// Several threads gather large batches.
#[test]
fn gathers_large_batches_in_parts() {
    let layout = layout(&[ElementType::Int32]);
    let memory = rows(1000, layout.stride(), 7);
    let rows = TableRows { bytes: &memory, stride: layout.stride(), attached: &[] };
    let schema = BatchSchema::new(&layout, Vec::new(), ElementType::Int32, None).unwrap();
    for num_rows in [(1 << 16) - 1, 1 << 16, (1 << 17) + 77] {
        let indices: Vec<u64> = (0..num_rows).map(|k| k * 7919 % 1000).collect();
        let turns = Some((SymmetryKey::new(1, 2), indices.as_slice()));
        let fast = filled(&schema, indices.len(), |columns| gather(rows, &indices, &schema, columns, turns));
        let slow = filled(&schema, indices.len(), |columns| naive(rows, &indices, &schema, columns, turns));
        assert!(fast == slow, "{num_rows} rows");
    }
}

#[test]
fn symmetries_are_all_eight_and_equally_often() {
    let key = SymmetryKey::new(5, 6);
    let mut counts = [0_u32; 8];
    for row in 0..80_000 {
        counts[key.symmetry_of(row) as usize] += 1;
    }
    // Binomial with a mean of 10,000 and a standard deviation of 94.
    assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    // Another epoch or seed gives a row the same symmetry in one case of eight.
    for other in [SymmetryKey::new(5, 7), SymmetryKey::new(6, 6)] {
        let same = (0..80_000).filter(|&row| key.symmetry_of(row) == other.symmetry_of(row)).count();
        assert!((9_500..10_500).contains(&same), "{same}");
    }
}

#[test]
fn rows_are_as_small_as_alignment_allows() {
    use ElementType::{Bool, Float64, Int16, Int32, UInt8};
    for (extras, stride) in [
        (vec![], STEP_SIZE),
        (vec![Bool], 40),
        // The second column has 4 values, and the fourth one has 6.
        (vec![UInt8, Int32, Int16, Bool], 64),
        (vec![Float64, Bool], 48),
        (vec![UInt8, Float64, Int32, Int16, Bool], 88),
    ] {
        let layout = layout(&extras);
        assert_eq!(layout.stride(), stride);
        for extra in layout.extras() {
            assert_eq!(extra.offset % extra.dtype.width(), 0);
        }
    }
}

#[test]
fn documentation_of_batches_lists_their_columns() {
    let lines = include_str!("gather/batch.rs").lines();
    let names = lines.filter_map(|line| line.strip_prefix("/// | `")?.split('`').next());
    assert_eq!(names.collect::<Vec<_>>(), step_columns());
}

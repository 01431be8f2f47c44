//! The digest that identifies a run in an archive.

use crate::error::Result;
use crate::format::{RunFormat, encode_run};
use crate::run::Run;

/// Returns the digest of a run. Runs with equal digests are duplicates.
///
/// For a whole game with normalized values, or without values, this is the hash of its canonical form, a2run2.
/// The format a2run2 cannot hold other runs, such as those with a tile of 65,536. Their digest is a hash of all their
/// parts.
pub(in crate::archive) fn run_digest(run: &Run) -> Result<[u8; 32]> {
    let meta = run.meta();
    // A log has an engine's name. The digest of a log ignores valuation types.
    let details = run.details().filter(|details| details.has_board_evals() || meta.engine.is_none());
    if run.missing().is_none() && !meta.raw_evs && !run.has_tile_65536() && details.is_none() {
        return Ok(*blake3::hash(&encode_run(run, RunFormat::A2run2)?).as_bytes());
    }
    let engine = meta.engine.as_deref().unwrap_or_default();
    let mut bytes = Vec::with_capacity(128 + engine.len() + 30 * run.num_steps());
    for option in [
        run.final_board().map(|board| board.board().0),
        meta.seed,
        meta.engine.as_ref().map(|engine| engine.len() as u64),
        Some(u64::from(meta.raw_evs)),
        Some(meta.start_unix_s),
        Some(u64::from(meta.elapsed_s.to_bits())),
        Some(meta.max_score),
        Some(u64::from(meta.highest_tile)),
        Some(run.num_steps() as u64),
    ] {
        bytes.push(u8::from(option.is_some()));
        bytes.extend(option.unwrap_or_default().to_le_bytes());
    }
    bytes.extend(engine.as_bytes());
    for step in (0..run.num_steps()).map_while(|place| run.step(place)) {
        bytes.extend(step.index.to_le_bytes());
        bytes.extend(step.board.board().0.to_le_bytes());
        bytes.push(step.chosen.map_or(u8::MAX, |chosen| chosen as u8));
        bytes.push(step.branches.map_or(u8::MAX, |branches| branches.legal));
        let values = step.branches.map_or([0.0; 4], |branches| branches.values);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    if run.has_tile_65536() {
        bytes.extend(run.tile_65536_masks().unwrap_or_default().iter().flat_map(|mask| mask.to_le_bytes()));
        bytes.extend(run.final_board().unwrap_or_default().tile_65536_mask().to_le_bytes());
    }
    for detail in details.iter().flat_map(|details| (0..run.num_steps()).map(|step| details.get(step))) {
        let name = detail.valuation_type;
        bytes.extend(name.map_or(u64::MAX, |name| name.len() as u64).to_le_bytes());
        bytes.extend(name.unwrap_or_default().as_bytes());
        let eval = detail.board_eval.map_or(u64::MAX, |eval| u64::from(eval as u32));
        bytes.extend(eval.to_le_bytes());
    }
    Ok(blake3::derive_key("a2store 2026 run that is not a whole game", &bytes))
}

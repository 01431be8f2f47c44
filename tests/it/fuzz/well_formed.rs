//! Invariants of every decoded run, and comparisons of runs.

use a2store::Run;

/// Checks the invariants of a run.
pub(super) fn check(run: &Run) -> Result<(), String> {
    let len = run.num_steps();
    let lens =
        [run.boards().len(), run.moves().len(), run.ev_values().len(), run.ev_legal().len(), run.has_evs().len()];
    let ensure = |sound: bool, what: &str| if sound { Ok(()) } else { Err(format!("a run with {what}")) };
    ensure(lens == [len; 5], "columns of different lengths")?;
    ensure(run.moves().iter().all(|&chosen| chosen as u8 <= 3), "a move above 3")?;
    ensure(run.ev_legal().iter().all(|&legal| legal <= 15), "a mask above 15")?;
    ensure(run.step_indices().is_none_or(|indices| indices.len() == len), "too few indices")?;
    let ascend = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
    ensure(run.step_indices().is_none_or(ascend), "indices out of order")?;
    ensure(ascend(run.unknown_moves()), "unknown moves out of order")?;
    ensure(run.unknown_moves().last().is_none_or(|&last| (last as usize) < len), "an unknown move of no step")?;
    for step in 0..len {
        let (board, values, legal) = (run.boards()[step], run.ev_values()[step], run.ev_legal()[step]);
        if run.has_evs()[step] {
            let of_illegal = (0..4).filter(|branch| legal >> branch & 1 == 0).map(|branch| values[branch].to_bits());
            ensure(of_illegal.sum::<u32>() == 0, "a value of an illegal move")?;
        } else {
            ensure(values.iter().all(|value| value.is_nan()) && legal == board.legal_moves(), "values of no branches")?;
        }
    }
    ensure(run.step(len).is_none() && run.branches(len).is_none(), "a step beyond the last")?;
    // It must not panic; violations of the rules are fine.
    let _ = run.verify();
    Ok(())
}

/// Returns whether two runs are equal bit by bit, even if the elapsed time is NaN.
pub(super) fn same(a: &Run, b: &Run) -> bool {
    let (x, y) = (a.meta(), b.meta());
    x.elapsed_s.to_bits() == y.elapsed_s.to_bits()
        && (x.start_unix_s, x.max_score, x.highest_tile, &x.engine, x.seed, x.raw_evs)
            == (y.start_unix_s, y.max_score, y.highest_tile, &y.engine, y.seed, y.raw_evs)
        && same_steps(a, b)
        && a.ev_values().iter().flatten().map(|value| value.to_bits()).eq(b
            .ev_values()
            .iter()
            .flatten()
            .map(|value| value.to_bits()))
        && (a.ev_legal(), a.has_evs(), a.final_board()) == (b.ev_legal(), b.has_evs(), b.final_board())
}

/// Returns whether two runs have the same boards, moves and indices.
pub(super) fn same_steps(a: &Run, b: &Run) -> bool {
    (a.boards(), a.moves(), a.unknown_moves(), a.step_indices())
        == (b.boards(), b.moves(), b.unknown_moves(), b.step_indices())
}

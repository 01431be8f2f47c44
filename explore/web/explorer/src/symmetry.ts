// The eight symmetries of the square, in the order of the archive's SQL function `transform`.

export interface Symmetry {
  name: string;
  /** For each cell of the turned board, the cell of the board that it shows. */
  cells: number[];
  /** For each move, the move that it becomes. */
  moves: number[];
  /** For each move of the turned board, the move of the board. */
  inverse: number[];
}

type Source = (row: number, column: number) => [number, number];

function symmetry(name: string, source: Source, moves: number[]): Symmetry {
  const cells = Array.from({ length: 16 }, (_, cell) => {
    const [row, column] = source(cell >> 2, cell & 3);
    return row * 4 + column;
  });
  return { name, cells, moves, inverse: [0, 1, 2, 3].map((move) => moves.indexOf(move)) };
}

// Moves are 0 up, 1 down, 2 left, 3 right.
export const SYMMETRIES: Symmetry[] = [
  symmetry("as played", (row, column) => [row, column], [0, 1, 2, 3]),
  symmetry("turned 90°", (row, column) => [3 - column, row], [3, 2, 0, 1]),
  symmetry("turned 180°", (row, column) => [3 - row, 3 - column], [1, 0, 3, 2]),
  symmetry("turned 270°", (row, column) => [column, 3 - row], [2, 3, 1, 0]),
  symmetry("mirrored left to right", (row, column) => [row, 3 - column], [0, 1, 3, 2]),
  symmetry("mirrored top to bottom", (row, column) => [3 - row, column], [1, 0, 2, 3]),
  symmetry("mirrored in the diagonal", (row, column) => [column, row], [2, 3, 0, 1]),
  symmetry("mirrored in the other diagonal", (row, column) => [3 - column, 3 - row], [3, 2, 1, 0]),
];

/** Returns a board under a symmetry, given as hex digits and mask. */
export function turnBoard(board: string, mask: number, { cells }: Symmetry): { board: string; mask: number } {
  return {
    board: cells.map((cell) => board[cell]).join(""),
    mask: cells.reduce((turned, source, cell) => turned | (((mask >> source) & 1) << cell), 0),
  };
}

// Reading a board from text, in the common forms of boards.

export type Parsed = { cells: number[]; form: string } | { error: string };

const HEX = /^(?:0x)?[0-9a-f]{16}$/i;
const SHORT_HEX = /^0x[0-9a-f]{1,16}$/i;
const DECIMAL = /^\d{1,20}$/;
const ADDRESS = /position\/([0-9a-f]{16})(?:\/mask\/(\d{1,5}))?\s*$/i;
const EMPTY = new Set([".", "·", "_", "-", "x"]);
const EXPECTED = "16 hex digits, a decimal number below 2^64, 16 tiles, or a JSON list of 16 numbers";

/** Reads a board. A text of 16 digits is read as hex digits, the form of all addresses. */
export function parseBoard(text: string): Parsed {
  const trimmed = text.trim();
  const address = ADDRESS.exec(trimmed);
  if (address?.[1] !== undefined) return fromHex(address[1], Number(address[2] ?? 0), "address");
  if (trimmed.startsWith("[")) return parseList(trimmed);
  if (HEX.test(trimmed) || SHORT_HEX.test(trimmed)) return fromHex(trimmed.replace(/^0x/i, ""), 0, "hex digits");
  if (DECIMAL.test(trimmed)) return fromDecimal(trimmed);
  return parseTiles(trimmed);
}

function fromHex(digits: string, mask: number, form: string): Parsed {
  const cells = [...digits.padStart(16, "0")].map((digit) => Number.parseInt(digit, 16));
  // A cell of the mask has the digit f; 0 is accepted too.
  const wide = cells.findIndex((exp, cell) => (mask >> cell) & 1 && exp !== 0 && exp !== 15);
  if (mask > 0xffff) return { error: `mask: expected at most 65,535, found ${mask}` };
  if (wide >= 0) return { error: `mask: cell ${wide} already holds ${2 ** (cells[wide] ?? 0)}` };
  return { cells: cells.map((exp, cell) => ((mask >> cell) & 1 ? 16 : exp)), form };
}

function fromDecimal(digits: string): Parsed {
  const value = BigInt(digits);
  if (value >= 1n << 64n) return { error: `Board: expected a number below 2^64, found ${digits}` };
  return fromHex(value.toString(16), 0, "decimal number");
}

function parseList(text: string): Parsed {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return { error: "Board: expected a JSON list, found invalid JSON" };
  }
  const numbers = (list as unknown[]).flat(Number.POSITIVE_INFINITY).map((value) => (value === null ? 0 : value));
  const strange = numbers.find((value) => typeof value !== "number");
  if (strange !== undefined) return { error: `Board: expected a list of numbers, found ${JSON.stringify(strange)}` };
  return fromNumbers(numbers as number[], "JSON list");
}

function parseTiles(text: string): Parsed {
  // Tables in a terminal have frames, and nothing in empty cells.
  const words = text
    .replace(/[│┃]/g, "|")
    .replace(/\|(?=[ \t]+\|)/g, "| . ")
    .replace(/[|/,;]|[+─-]{2,}|[┌┐└┘├┤┬┴┼]/g, " ")
    .split(/\s+/)
    .filter((word) => word !== "" && word !== "+");
  if (words.length === 4 && words.every((word) => /^[0-9a-f]{4}$/i.test(word))) {
    return fromHex(words.join(""), 0, "four rows of hex digits");
  }
  const strange = words.find((word) => !EMPTY.has(word.toLowerCase()) && !/^\d+$/.test(word));
  if (strange !== undefined) return { error: `Board: expected ${EXPECTED}; found “${strange.slice(0, 30)}”` };
  return fromNumbers(
    words.map((word) => (EMPTY.has(word.toLowerCase()) ? 0 : Number(word))),
    "tiles",
  );
}

function fromNumbers(numbers: number[], form: string): Parsed {
  if (numbers.length !== 16) return { error: `Board: expected ${EXPECTED}; found ${numbers.length} numbers` };
  const strange = numbers.findIndex((value) => value !== 0 && exponentOf(value) === null);
  if (strange < 0) return { cells: numbers.map((value) => exponentOf(value) ?? 0), form };
  if (numbers.every((value) => Number.isInteger(value) && value >= 0 && value <= 16)) {
    return { cells: numbers, form: `${form} of exponents` };
  }
  return { error: `Cell ${strange}: expected 0 or a power of 2 from 2 to 65,536, found ${numbers[strange]}` };
}

/** The exponent of a tile, 1 to 16; null if there is no such tile. */
export function exponentOf(tile: number): number | null {
  const exp = Math.log2(tile);
  return Number.isInteger(exp) && exp >= 1 && exp <= 16 ? exp : null;
}

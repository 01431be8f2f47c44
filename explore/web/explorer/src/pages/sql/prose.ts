// Texts of the documentation, in which backticks enclose code.

import type { Child } from "../../dom";
import { el } from "../../dom";

export function prose(text: string): Child[] {
  return text.split("`").map((part, index) => (index % 2 === 1 ? el("code", {}, part) : part));
}

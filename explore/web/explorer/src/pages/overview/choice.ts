// The choice of a report: its condition, its groups, and the two groups that it compares.

import type { ReportRequest } from "../../api/types";
import type { Route } from "../../router";
import { formatRoute } from "../../router";

export const GROUPS = ["engine", "version", "format", "session"] as const;

export type Choice = ReportRequest;

export function choiceOf({ params }: Route): Choice {
  const [first, second] = [params.get("first") ?? "", params.get("second") ?? ""];
  return {
    where: params.get("where") ?? "",
    by: GROUPS.find((group) => group === params.get("by")) ?? "engine",
    compare: first !== "" && second !== "" ? [first, second] : null,
  };
}

export function hashOf({ where, by, compare }: Choice): string {
  const [first, second] = compare ?? [null, null];
  return formatRoute(["overview"], { where, by: by === "engine" ? null : by, first, second });
}

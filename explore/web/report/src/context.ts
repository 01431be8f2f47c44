// The data that all sections share: the results, the links and the engines.

import type { Chart } from "./chart";
import { chartFigure } from "./chart";
import type { Report, Result, Row } from "./data";
import { rowsOf } from "./data";
import type { Child } from "./dom";
import { Links } from "./links";
import type { Series } from "./series";
import { SeriesList } from "./series";

/** A section of the page. */
export interface Section {
  id: string;
  title: string;
  /** The content of the section, and how to read it. */
  lede: string;
  /** The keys of the results it shows. */
  keys: string[];
  /** The sentence that replaces the section's content if it has no result at all. */
  absent?: string;
  content(context: Context): Child[];
}

export class Context {
  readonly report: Report;
  readonly links: Links;
  readonly series: SeriesList;

  constructor(report: Report) {
    this.report = report;
    this.links = new Links(report);
    this.series = new SeriesList(report);
  }

  /** Returns a result with at least one row, or null. */
  result(key: string): Result | null {
    const result = this.report.results[key];
    return result === undefined || result.error !== null || result.rows.length === 0 ? null : result;
  }

  /** Returns the rows of a result; none if it is missing. */
  rows(key: string): Row[] {
    const result = this.result(key);
    return result === null ? [] : rowsOf(result);
  }

  /** Returns the series of a result that charts show, for their legends. */
  legend(key: string): Series[] {
    const result = this.result(key);
    return result === null ? [] : this.series.split(result).map(([series]) => series);
  }

  chart(chart: Chart): HTMLElement {
    return chartFigure(chart, this.series);
  }
}

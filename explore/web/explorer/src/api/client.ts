// The server's API. An aborted request rejects with an AbortError and cancels its query on the server.

import type {
  Annotation,
  Archive,
  Board,
  DownloadFormat,
  Params,
  PolicyValues,
  Position,
  QueryResult,
  Report,
  ReportRequest,
  Run,
  Runs,
  RunsRequest,
  Schema,
} from "./types";

/** The state of the connection to the server. `restarted` means that this page's token is invalid. */
export type Connection = "online" | "offline" | "restarted";

/** A response with an error status. `kind` is the server's name for the error, or "offline". */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly kind: string,
    readonly status: number,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** Whether an error comes from an aborted request, and needs no message. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** The text of an error for the reader. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The time within which the browser begins to save a file. */
const REVOKE_DELAY = 60_000;

export class Api {
  readonly #listeners = new Set<(connection: Connection) => void>();
  #connection: Connection = "online";

  get connection(): Connection {
    return this.#connection;
  }

  /** Calls `listener` whenever the connection changes. Returns the function that stops it. */
  onConnection(listener: (connection: Connection) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  setConnection(connection: Connection): void {
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const listener of this.#listeners) listener(connection);
  }

  archive(signal?: AbortSignal): Promise<Archive> {
    return this.#send("GET", "/api/archive", undefined, signal);
  }

  runs(request: RunsRequest, signal?: AbortSignal): Promise<Runs> {
    return this.#send("POST", "/api/runs", request, signal);
  }

  run(runId: number, signal?: AbortSignal): Promise<Run> {
    return this.#send("GET", `/api/runs/${runId}`, undefined, signal);
  }

  /** The annotations of the steps from `from` to before `to`, at most 512 steps. */
  async annotations(runId: number, from: number, to: number, signal?: AbortSignal): Promise<Annotation[]> {
    const path = `/api/runs/${runId}/annotations?from=${from}&to=${to}`;
    return (await this.#send<{ rows: Annotation[] }>("GET", path, undefined, signal)).rows;
  }

  /** The live policy's values of at most 512 boards. */
  policy(boards: Board[], signal?: AbortSignal): Promise<PolicyValues> {
    const body = { boards: boards.map(({ board, mask }) => [board, mask]) };
    return this.#send("POST", "/api/policy", body, signal);
  }

  position(board: Board, limit: number, signal?: AbortSignal): Promise<Position> {
    return this.#send("POST", "/api/position", { board: board.board, mask: board.mask, limit }, signal);
  }

  sql(sql: string, params: Params, limit: number, signal?: AbortSignal): Promise<QueryResult> {
    return this.#send("POST", "/api/sql", { sql, params, limit }, signal);
  }

  query(name: string, params: Params, limit: number, signal?: AbortSignal): Promise<QueryResult> {
    return this.#send("POST", "/api/sql", { name, params, limit }, signal);
  }

  /** Downloads the result of a query as a file. Browsers keep a large one on the disk. */
  async download(source: { sql: string } | { name: string }, params: Params, format: DownloadFormat): Promise<void> {
    const response = await this.#fetch("POST", "/api/download", { ...source, params, format });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = `${"name" in source ? source.name : "result"}.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_DELAY);
  }

  schema(signal?: AbortSignal): Promise<Schema> {
    return this.#send("GET", "/api/schema", undefined, signal);
  }

  report(request: ReportRequest, signal?: AbortSignal): Promise<Report> {
    return this.#send("POST", "/api/report", request, signal);
  }

  async #send<Answer>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Answer> {
    return (await (await this.#fetch(method, path, body, signal)).json()) as Answer;
  }

  async #fetch(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(path, {
        method,
        headers: body === undefined ? {} : { "content-type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: signal ?? null,
      });
    } catch (error) {
      if (isAbort(error)) throw error;
      this.setConnection("offline");
      throw new ApiError("The server does not answer.", "offline", 0);
    }
    if (response.status === 401) {
      this.setConnection("restarted");
      throw new ApiError(
        "The server restarted. Open the address that it printed in the terminal.",
        "unauthorized",
        401,
      );
    }
    this.setConnection("online");
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as { error?: string; kind?: string } | null;
  const message = body?.error ?? `The server answered with status ${response.status}.`;
  return new ApiError(message, body?.kind ?? "other", response.status);
}

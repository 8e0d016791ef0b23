// The tracing interface of gateway and agent. Spans contain no text of people or models. Without a
// collector it does nothing.

export type SpanValue = string | number | boolean | undefined;
export type SpanAttributes = Readonly<Record<string, SpanValue>>;

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  /** The header by which a called system joins the trace; undefined without tracing. */
  readonly traceparent: string | undefined;
  /** Attributes without a value are omitted; strings are shortened, and secrets in them hidden. */
  set(attributes: SpanAttributes): void;
  rename(name: string): void;
  /** Marks the span as failed; the reason is an error code or the name of a class, never a message. */
  fail(reason: string): void;
  /** `atMs` is a time of the monotonic clock; now when absent. A second call has no effect. */
  end(atMs?: number): void;
}

export interface SpanOptions {
  kind?: 'internal' | 'server' | 'client';
  attributes?: SpanAttributes;
  /** A `traceparent` from outside, used as the parent instead of the current span. */
  remoteParent?: string | undefined;
  /** Starts a trace of its own even within another span. */
  isRoot?: boolean;
  /** The `traceparent` of the cause that is not the parent, such as the request that enqueued the work. */
  link?: string | undefined;
}

export interface Traces {
  readonly isOn: boolean;
  /** Starts a span below the current one. The caller ends it. */
  start(name: string, options?: SpanOptions): Span;
  /** Runs the work, including everything that it leaves running, within the span. */
  runInSpan<T>(span: Span, work: () => T): T;
  /** The `traceparent` of the current span. */
  traceparent(): string | undefined;
}

const silentSpan: Span = {
  traceId: '',
  spanId: '',
  traceparent: undefined,
  set() {},
  rename() {},
  fail() {},
  end() {},
};

/** Traces nothing. */
export const silentTraces: Traces = {
  isOn: false,
  start: () => silentSpan,
  runInSpan: (_span, work) => work(),
  traceparent: () => undefined,
};

/** Runs the work as a span that ends with it. An error marks the span with the code that `reasonOf` finds. */
export async function withSpan<T>(
  traces: Traces,
  span: Span,
  work: () => Promise<T>,
  reasonOf: (error: unknown) => string = codeOf,
): Promise<T> {
  try {
    return await traces.runInSpan(span, work);
  } catch (error) {
    span.fail(reasonOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** The stable name of an error: its `code`, such as a Problem's or a system error's, else its class. */
export function codeOf(error: unknown): string {
  if (error instanceof Error)
    return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
  return 'unknown';
}

// What the rooms trace with. A span says what was done and how long it took; what a person or a model wrote never
// stands in one. Without a collector all of this does nothing.

export type SpanValue = string | number | boolean | undefined;
export type SpanAttributes = Readonly<Record<string, SpanValue>>;

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  /** The header by which a called system joins the trace; undefined while nothing is traced. */
  readonly traceparent: string | undefined;
  /** Members without a value are left out; texts are shortened, and secrets in them hidden. */
  set(attributes: SpanAttributes): void;
  rename(name: string): void;
  /** Marks the span as failed; the reason is a code of ours and never a message. */
  fail(reason: string): void;
  /** `atMs` is of the monotonic clock; now when absent. A second call has no effect. */
  end(atMs?: number): void;
}

export interface SpanOptions {
  kind?: 'internal' | 'server' | 'client';
  attributes?: SpanAttributes;
  /** A `traceparent` that came from outside, in place of the span that is open here. */
  remoteParent?: string | undefined;
  /** Begins a trace of its own even where a span is open. */
  isRoot?: boolean;
  /** The `traceparent` of what brought it about and is not above it, such as the request that put it into a queue. */
  link?: string | undefined;
}

export interface Traces {
  readonly isOn: boolean;
  /** Begins a span below the one that is open here. Whoever begins it ends it. */
  start(name: string, options?: SpanOptions): Span;
  /** Runs the work, and whatever it leaves running, below the span. */
  within<T>(span: Span, work: () => T): T;
  /** The `traceparent` of the span that is open here. */
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
  within: (_span, work) => work(),
  traceparent: () => undefined,
};

/** Runs the work as a span that ends with it. What it throws marks the span by the code that `reasonOf` finds. */
export async function withSpan<T>(
  traces: Traces,
  span: Span,
  work: () => Promise<T>,
  reasonOf: (thrown: unknown) => string = codeOf,
): Promise<T> {
  try {
    return await traces.within(span, work);
  } catch (thrown) {
    span.fail(reasonOf(thrown));
    throw thrown;
  } finally {
    span.end();
  }
}

/** A thrown thing's stable name: a Problem's code, else the error's class. */
export function codeOf(thrown: unknown): string {
  if (thrown instanceof Error)
    return 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : thrown.name;
  return 'unknown';
}

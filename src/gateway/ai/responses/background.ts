// Background responses (`background: true`): they keep running when their client disconnects, and any later
// request reads, joins or cancels them by id.
import type { ResponseEvent } from '../../../contract/gateway/types.gen.ts';
import { pause } from '../../../kernel/async.ts';
import type { SseEvent } from '../../../kernel/contract/operation.ts';
import { rememberNothing, notReplayable, type Remember } from '../../../kernel/data/idempotency.ts';
import { readEvents } from '../../../kernel/http/reply-events.ts';
import { isRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import type { ResponsePlan } from './plan.ts';
import type { ResponseRuns, Run } from './runs/runs.ts';
import { ownerKey } from '../calls/owner.ts';
import type { StoredResponses } from './stored/stored-responses.ts';
import { truncatedByProvider } from '../hub/problems.ts';
import { finalEventTypes } from '../formats/responses/answer.ts';

export type EventItem = SseEvent<ResponseEvent>;

/** The reply of a streamed call: events of a translated answer, or the bytes of a passed-through one. */
export type StreamReply =
  | { events: AsyncIterable<SseEvent<unknown>> }
  | { content: Uint8Array | AsyncIterable<Uint8Array> };

export interface BackgroundOptions {
  runs: ResponseRuns;
  storedResponses: StoredResponses;
  log: Log;
}

/** The background responses that run in this process. */
export interface BackgroundResponses {
  /**
   * Starts the response. Resolves when the first request to a provider is about to be sent. Rejects with an
   * error of the call before that point; then no response is stored.
   */
  start(call: BackgroundCall): Promise<BackgroundResponse>;
  /** The events after the sequence number; undefined when the response does not run here. */
  events(responseId: string, afterSequence: number): AsyncIterable<EventItem> | undefined;
  /** Cancels the response and waits until it has ended; false when it does not run in this process. */
  cancel(responseId: string): Promise<boolean>;
  /**
   * Renews the lease of a row that `start` has not stored, until the returned function is called: the row of
   * a stream with an Idempotency-Key. `start` renews the leases of background responses itself.
   */
  keepLease(responseId: string): () => void;
  /** Ends all responses as failed. */
  close(): Promise<void>;
}

const renewEveryMs = 10_000;
const checkEveryMs = 1_000;

export function createBackgroundResponses(options: BackgroundOptions): BackgroundResponses {
  const { runs } = options;
  /** The ids of the running responses that have a row. */
  const runningIds = new Set<string>();
  const stopChecks = checkRegularly(options, runningIds);

  return {
    start: (call) => startBackground(options, runningIds, call),
    events: (responseId, afterSequence) =>
      runs.find(responseId)?.log.read(afterSequence) as AsyncIterable<EventItem> | undefined,
    async cancel(responseId) {
      const run = runs.find(responseId);
      if (run === undefined) return false;
      run.abort(cancellation);
      await run.completion;
      return true;
    },
    keepLease(responseId) {
      runningIds.add(responseId);
      return () => void runningIds.delete(responseId);
    },
    async close() {
      await runs.close();
      stopChecks();
    },
  };
}

/**
 * Renews the leases of the responses, and aborts those for which another gateway has written a cancellation
 * to the database, or whose row it has deleted. Checks never overlap, even when the database is slow.
 */
function checkRegularly(
  { runs, storedResponses, log }: BackgroundOptions,
  runningIds: ReadonlySet<string>,
): () => void {
  let isChecking = false;
  let renewedMs = performance.now();

  async function check(): Promise<void> {
    const responseIds = [...runningIds];
    if (responseIds.length === 0 || isChecking) return;
    isChecking = true;
    try {
      const startMs = performance.now();
      if (startMs - renewedMs >= renewEveryMs) {
        await storedResponses.renew(responseIds);
        renewedMs = startMs;
      }
      const uncanceledIds = new Set(await storedResponses.findUncanceled(responseIds));
      for (const responseId of responseIds)
        if (!uncanceledIds.has(responseId)) runs.find(responseId)?.abort(cancellation);
    } catch (error) {
      log.warn({ err: error }, 'the leases of background responses could not be renewed');
    } finally {
      isChecking = false;
    }
  }

  const timer = setInterval(() => void check(), checkEveryMs);
  timer.unref();
  return () => clearInterval(timer);
}

/**
 * Members of a call that outlives its HTTP request: the signal of its run instead of the client's, and a
 * `remember` that stores no reply under the Idempotency-Key.
 */
export interface DetachedCall {
  signal: AbortSignal;
  remember: Remember;
}

export interface BackgroundCall {
  plan: ResponsePlan;
  /** The response before its first item. */
  response: JsonRecord;
  remember: Remember;
  /** The client's signal. */
  signal: AbortSignal;
  /** Calls the model as a stream; `beforeSend` must run before each attempt. */
  answer(detached: DetachedCall, beforeSend: () => Promise<void>): Promise<StreamReply>;
}

/** A background response that has just started, and a function that reads all its events. */
export interface BackgroundResponse {
  response: JsonRecord;
  events(): AsyncIterable<EventItem>;
}

async function startBackground(
  { runs, storedResponses, log }: BackgroundOptions,
  runningIds: Set<string>,
  { plan, response, remember, signal, answer }: BackgroundCall,
): Promise<BackgroundResponse> {
  const { responseId, owner, previousId, request } = plan;
  const start = Promise.withResolvers<void>();
  let isStarted = false;
  const storeOnce = async (): Promise<void> => {
    if (isStarted) return;
    const runningResponse = { ...response, status: 'in_progress' };
    await storedResponses.begin(
      { responseId, owner, previousId, input: request.input, response: runningResponse },
      (tx) => remember.bind(tx, { responseId }),
    );
    isStarted = true;
    runningIds.add(responseId);
    start.resolve();
  };
  const run = runs.start<EventItem>({ runId: responseId, owner: ownerKey(owner) }, async (current) => {
    const recorder = new Recorder(current, { response, storedResponses, responseId, log });
    try {
      const reply = await answer({ signal: current.signal, remember: rememberNothing }, storeOnce);
      for await (const event of readEvents(reply)) await recorder.accept(event);
      recorder.requireFinal();
    } catch (error) {
      if (!isStarted) return start.reject(error);
      await recorder.fail(asProblem(error));
    } finally {
      runningIds.delete(responseId);
      if (isStarted) storedResponses.endRun(responseId);
    }
  });
  const abortUnlessStarted = (): void => {
    if (!isStarted) run.abort();
  };
  if (signal.aborted) abortUnlessStarted();
  else signal.addEventListener('abort', abortUnlessStarted, { once: true });
  try {
    await start.promise;
  } finally {
    signal.removeEventListener('abort', abortUnlessStarted);
  }
  // OpenAI answers a new background response as `queued`, and so does this reply. The call already runs, so
  // the row, which every later read returns, says `in_progress`.
  return { response: { ...response, status: 'queued' }, events: () => run.log.read(-1) };
}

// One minute in total. After it the lease is no longer renewed, so it expires and the response counts as
// failed.
const storeAgainMs = 2_000;
const storeTries = 30;

interface RecorderOptions extends Pick<BackgroundOptions, 'storedResponses' | 'log'> {
  /** The response before its first item. */
  response: JsonRecord;
  responseId: string;
}

/** Writes the events of a run to its log, and stores the final response before the final event. */
class Recorder {
  readonly #run: Run<EventItem>;
  readonly #options: RecorderOptions;
  /** The complete items by the provider's `output_index`, which may be any value. */
  readonly #items = new Map<unknown, unknown>();
  #latestResponse: JsonRecord;
  #sequence = 0;
  #isFinal = false;

  constructor(run: Run<EventItem>, options: RecorderOptions) {
    this.#run = run;
    this.#options = options;
    this.#latestResponse = options.response;
  }

  async accept(event: JsonRecord): Promise<void> {
    if (this.#isFinal) return;
    const { type, response } = event;
    if (type === 'error') throw failureOf(event);
    if (type === 'response.output_item.done')
      this.#items.set(event['output_index'] ?? this.#items.size, event['item']);
    if (isRecord(response)) this.#latestResponse = response;
    if (isRecord(response) && finalEventTypes.has(type)) await this.#end(String(type), response);
    else this.#append(event);
  }

  /** Throws for a stream that ended without a final response. */
  requireFinal(): void {
    if (!this.#isFinal) throw truncatedByProvider();
  }

  async fail(problem: Problem): Promise<void> {
    if (this.#isFinal) return;
    const { message } = problem;
    const code = problem.externalCode ?? problem.code;
    if (this.#isCanceled()) await this.#end('response.cancelled', this.#partialResponse('cancelled'));
    else await this.#end('response.failed', { ...this.#partialResponse('failed'), error: { code, message } });
  }

  /** Whether the owner has canceled the run; any other abort is a failure. */
  #isCanceled(): boolean {
    return this.#run.signal.aborted && this.#run.signal.reason === cancellation;
  }

  #append(event: JsonRecord): void {
    const sequence = this.#sequence;
    this.#sequence += 1;
    const numberedEvent = { ...event, sequence_number: sequence };
    const item: EventItem = {
      event: String(event['type']),
      id: String(sequence),
      data: numberedEvent as unknown as ResponseEvent,
    };
    this.#run.log.append({ sequence, item, bytes: Buffer.byteLength(JSON.stringify(numberedEvent)) });
  }

  /** Sends the final event even if the database write fails: the answer is already charged. */
  async #end(type: string, finalResponse: JsonRecord): Promise<void> {
    this.#isFinal = true;
    let isStored = await this.#store(finalResponse);
    this.#append({ type, response: finalResponse });
    for (let tries = 0; !isStored && tries < storeTries && !this.#isStopping(); tries += 1) {
      await pause(storeAgainMs);
      isStored = await this.#store(finalResponse);
    }
  }

  #isStopping(): boolean {
    return this.#run.signal.aborted && !this.#isCanceled();
  }

  /** Logs a failed write and returns false. */
  async #store(finalResponse: JsonRecord): Promise<boolean> {
    const { storedResponses, responseId, log } = this.#options;
    try {
      await storedResponses.finish(responseId, finalResponse);
      return true;
    } catch (error) {
      log.error({ err: error, responseId }, 'a background response could not be stored');
      return false;
    }
  }

  /** The response with the items that were complete before the run ended. */
  #partialResponse(status: 'cancelled' | 'failed'): JsonRecord {
    const output = [...this.#items]
      .toSorted(([left], [right]) => Number(left) - Number(right))
      .flatMap(([, item]) => (item === undefined ? [] : [item]));
    return { ...this.#latestResponse, output, status };
  }
}

/** The abort reason of a run that its owner has canceled. */
const cancellation = new Problem('conflict', 'conflict', 'The response is canceled.');

function failureOf(event: JsonRecord): Problem {
  // Some providers put code and message in the member `error`, others in the event itself.
  const { code, message }: JsonRecord = isRecord(event['error']) ? { ...event, ...event['error'] } : event;
  const text = typeof message === 'string' ? message : 'The model provider failed.';
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    text,
    typeof code === 'string' ? { externalCode: code } : {},
  );
}

/**
 * The id of the response that an earlier call with the same Idempotency-Key started; undefined for the first
 * call.
 */
export function startedResponse({ started }: Remember): string | undefined {
  if (started === undefined) return undefined;
  const { responseId } = started as { responseId?: unknown };
  if (typeof responseId !== 'string') throw notReplayable();
  return responseId;
}

// Streams with an Idempotency-Key: the call keeps running for a while when its client disconnects, and a
// repeated request with the same key joins it. Passed-through bytes are replayed unchanged.
import { notReplayable, type Remember, rememberNothing } from '../../../kernel/data/idempotency.ts';
import { eventOf, readFrames } from '../../../kernel/http/reply-events.ts';
import { id } from '../../../kernel/ids.ts';
import type { SseEvent } from '../../../kernel/contract/operation.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { JsonRecord } from '../../../kernel/json-value.ts';
import type { Log } from '../../../kernel/log.ts';
import {
  type BackgroundResponses,
  type DetachedCall,
  startedResponse,
  type StreamReply,
} from './background.ts';
import type { ResponseRuns, Run } from './runs/runs.ts';
import { type Owner, ownerKey } from '../calls/owner.ts';
import type { StoredResponses } from './stored/stored-responses.ts';

/** The status and headers of a reply, without its events or bytes. */
interface ReplyHead {
  status: 200;
  headers: Record<string, string>;
  mediaType?: string;
}

/** The reply of a streamed call. */
export type JoinableReply = ReplyHead & StreamReply;

export interface JoinedStreamOptions {
  runs: ResponseRuns;
  storedResponses: Pick<StoredResponses, 'begin' | 'find' | 'remove'>;
  background: Pick<BackgroundResponses, 'keepLease'>;
  log: Log;
  owner: Owner;
  /** The response before its first item. It is stored while the call runs, in case this process crashes. */
  response: JsonRecord;
  remember: Remember;
  /** The client's signal. */
  signal: AbortSignal;
  /** The call is aborted when it has had no reader for this time. */
  graceMs: number;
  /** The sequence number of the last event that the client has. */
  afterSequence: number;
  answer(detached: DetachedCall, beforeSend: () => Promise<void>): Promise<JoinableReply>;
}

/**
 * Streams a new call, or the running call that the request repeats. Throws a 409 when the events of that call
 * are gone. If the process of that call has crashed, the stream is a failed response.
 */
export async function joinStream(options: JoinedStreamOptions): Promise<JoinableReply> {
  const earlierRunId = startedResponse(options.remember);
  if (earlierRunId === undefined) return joinRun(startRun(options), options);
  const run = options.runs.find(earlierRunId);
  return run === undefined ? readCrashed(options, earlierRunId) : joinRun(run, options);
}

async function joinRun(run: Run, { signal, afterSequence }: JoinedStreamOptions): Promise<JoinableReply> {
  const reader = readLog(run, afterSequence);
  const leave = (): void => {
    void reader.return?.();
    // A Problem as the reason, such as a revoked token or a stopping server, ends the call itself and not
    // only this reader.
    if (signal.reason instanceof Problem) run.abort(signal.reason);
  };
  if (signal.aborted) leave();
  else signal.addEventListener('abort', leave, { once: true });
  try {
    const { isEvents, ...head } = (await run.head) as ReplyHead & { isEvents: boolean };
    return { ...head, [isEvents ? 'events' : 'content']: reader } as unknown as JoinableReply;
  } catch (error) {
    void reader.return?.();
    throw error;
  }
}

function readLog(run: Run, afterSequence: number): AsyncIterableIterator<unknown> {
  try {
    return run.log.read(afterSequence);
  } catch {
    throw notReplayable();
  }
}

/**
 * The final event of a call whose process has crashed. Throws a 409 for any other call whose events are not
 * in this process.
 */
async function readCrashed(
  { storedResponses, owner, afterSequence }: JoinedStreamOptions,
  runId: string,
): Promise<JoinableReply> {
  const response = await storedResponses.find({ responseId: runId, owner }).catch((error: unknown) => {
    if (error instanceof Problem && error.kind === 'not_found') throw notReplayable();
    throw error;
  });
  if (response['status'] !== 'failed') throw notReplayable();
  const events: JsonRecord[] = [];
  const add = (type: string, view: JsonRecord): void => {
    const sequence = Math.max(afterSequence, -1) + events.length + 1;
    events.push({ type, response: view, sequence_number: sequence });
  };
  // Clients expect this event first; a client that rejoins has already received it.
  if (afterSequence < 0) add('response.created', { ...response, status: 'in_progress', error: null });
  add('response.failed', { ...response, error: { code: 'server_error', message: crashMessage } });
  return { status: 200, headers: {}, events: toEvents(events) };
}

const crashMessage =
  'The gateway that ran this call has stopped; what the model wrote until then is charged. ' +
  'Send the call again with another Idempotency-Key.';

async function* toEvents(events: readonly JsonRecord[]): AsyncGenerator<SseEvent<JsonRecord>> {
  for (const data of events) yield { event: String(data['type']), id: String(data['sequence_number']), data };
}

function startRun(options: JoinedStreamOptions): Run {
  const { runs, owner, graceMs, answer } = options;
  const runId = id('run');
  const row = createRow(options, runId);
  const ready = Promise.withResolvers<ReplyHead & { isEvents: boolean }>();
  // Prevents an unhandled rejection when no client waits for the head of the reply.
  ready.promise.catch(() => {});
  const run = runs.start<unknown>({ runId, owner: ownerKey(owner), graceMs }, async (current) => {
    try {
      const reply = await answer({ signal: current.signal, remember: rememberNothing }, row.begin);
      const { status, headers, mediaType } = reply;
      const isEvents = 'events' in reply;
      ready.resolve({ status, headers, isEvents, ...(mediaType === undefined ? {} : { mediaType }) });
      if ('events' in reply) await recordEvents(current, reply.events);
      else await recordFrames(current, reply.content);
      // A reader must not mistake a partial answer for a complete one. Check this before `row.end`: once the
      // row is deleted, the regular check for cancellations may abort this complete run.
      if (current.signal.aborted) throw notReplayable();
    } catch (error) {
      ready.reject(error);
      throw error;
    } finally {
      await row.end(current.signal);
    }
  });
  run.head = ready.promise;
  return run;
}

/**
 * The database row of a running call, deleted when the call ends. If this process crashes, the row's lease
 * expires, and a repeated request finds a failed response in it.
 */
function createRow(
  { storedResponses, background, log, owner, response, remember }: JoinedStreamOptions,
  runId: string,
) {
  let endLease: (() => void) | undefined;
  return {
    async begin(): Promise<void> {
      if (endLease !== undefined) return;
      await storedResponses.begin({ responseId: runId, owner, previousId: null, input: [], response }, (tx) =>
        remember.bind(tx, { responseId: runId }),
      );
      endLease = background.keepLease(runId);
    },
    async end({ aborted, reason }: AbortSignal): Promise<void> {
      if (endLease === undefined) return;
      endLease();
      // A stopping server keeps the row, so that a repeated request finds a failed response as after a crash.
      if (aborted && reason instanceof Problem && reason.code === 'draining') return;
      await storedResponses
        .remove({ responseId: runId, owner })
        .catch((error: unknown) =>
          log.warn({ err: error, runId }, 'the row of a stream could not be deleted'),
        );
    },
  };
}

async function recordEvents(run: Run, events: AsyncIterable<SseEvent<unknown>>): Promise<void> {
  let sequence = 0;
  for await (const event of events) {
    const item = { ...event, id: String(sequence) };
    run.log.append({ sequence, item, bytes: Buffer.byteLength(JSON.stringify(event.data)) });
    sequence += 1;
  }
}

async function recordFrames(run: Run, content: Uint8Array | AsyncIterable<Uint8Array>): Promise<void> {
  let nextSequence = 0;
  for await (const frame of readFrames(content)) {
    const bytes = Buffer.from(frame);
    const isComment = frame.startsWith(':');
    const sequence = isComment ? undefined : (providerSequence(frame) ?? nextSequence);
    if (sequence !== undefined) nextSequence = sequence + 1;
    run.log.append({ sequence, item: bytes, bytes: bytes.length });
  }
}

/** The sequence number that the provider has written into the event. */
function providerSequence(frame: string): number | undefined {
  const sequence = eventOf(frame)?.['sequence_number'];
  return Number.isSafeInteger(sequence) ? (sequence as number) : undefined;
}

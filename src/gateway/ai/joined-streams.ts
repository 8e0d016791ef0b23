// Streams with an Idempotency-Key: the call runs on for a while without its reader, and a repetition with the
// same key joins it. The bytes of a provider stay as they are.
import { notReplayable, type Remember, rememberNothing } from '../../kernel/data/idempotency.ts';
import { framesOf } from '../../kernel/http/reply-events.ts';
import { id } from '../../kernel/ids.ts';
import type { SseEvent } from '../../kernel/contract/operation.ts';
import { Problem } from '../../kernel/problem.ts';
import { type Detached, startedResponse, type StreamReply } from './response-background.ts';
import type { ResponseRuns, Run } from './response-runs/runs.ts';
import type { StoredResponses } from './stored-responses/stored-responses.ts';

interface Head {
  status: 200;
  headers: Record<string, string>;
  mediaType?: string;
}

/** The reply of a streamed call. */
export type JoinableReply = Head & StreamReply;

export interface JoinedStreamOptions {
  runs: ResponseRuns;
  storedResponses: Pick<StoredResponses, 'within'>;
  owner: string;
  remember: Remember;
  /** The client's signal. */
  signal: AbortSignal;
  /** Without a reader for this long the call is aborted. */
  graceMs: number;
  /** The sequence number of the last event that the client has. */
  afterSequence: number;
  answer(detached: Detached, beforeSend: () => Promise<void>): Promise<JoinableReply>;
}

/** The stream of a first call, or of the call that it repeats. Throws a 409 when its events are gone. */
export async function joinStream(options: JoinedStreamOptions): Promise<JoinableReply> {
  const { runs, remember, signal, afterSequence } = options;
  const earlier = startedResponse(remember);
  const run = (earlier === undefined ? start(options) : runs.find(earlier)) as Run | undefined;
  if (run === undefined) throw notReplayable();
  const reader = readLog(run, afterSequence);
  const leave = (): void => void reader.return?.();
  signal.addEventListener('abort', leave, { once: true });
  // A revoked token or a server that stops ends the call as well.
  const stop = (): void => {
    if (signal.reason instanceof Problem) run.abort(signal.reason);
  };
  signal.addEventListener('abort', stop, { once: true });
  try {
    const { isEvents, ...head } = (await run.head) as Head & { isEvents: boolean };
    return { ...head, [isEvents ? 'events' : 'content']: reader } as unknown as JoinableReply;
  } catch (error) {
    leave();
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

function start({ runs, storedResponses, owner, remember, graceMs, answer }: JoinedStreamOptions): Run {
  const runId = id('run');
  let isBound = false;
  const bind = async (): Promise<void> => {
    if (isBound) return;
    await storedResponses.within((tx) => remember.bind(tx, { responseId: runId }));
    isBound = true;
  };
  const ready = Promise.withResolvers<Head & { isEvents: boolean }>();
  // Without a reader at that moment there is no other handler.
  ready.promise.catch(() => {});
  const run = runs.start<unknown>({ runId, owner, graceMs }, async (current) => {
    try {
      const reply = await answer({ signal: current.signal, remember: rememberNothing }, bind);
      const { status, headers, mediaType } = reply;
      const isEvents = 'events' in reply;
      ready.resolve({ status, headers, isEvents, ...(mediaType === undefined ? {} : { mediaType }) });
      if ('events' in reply) await recordEvents(current, reply.events);
      else await recordFrames(current, reply.content);
    } catch (error) {
      ready.reject(error);
      throw error;
    }
    // A reader must not take a part of the answer for the whole.
    if (current.signal.aborted) throw notReplayable();
  });
  run.head = ready.promise;
  return run;
}

async function recordEvents(run: Run, events: AsyncIterable<SseEvent<unknown>>): Promise<void> {
  let sequence = 0;
  for await (const event of events) {
    const item = { ...event, id: String(sequence) };
    run.log.append({ sequence, item, bytes: JSON.stringify(event.data).length });
    sequence += 1;
  }
}

async function recordFrames(run: Run, content: Uint8Array | AsyncIterable<Uint8Array>): Promise<void> {
  let next = 0;
  for await (const frame of framesOf(content)) {
    const bytes = Buffer.from(frame);
    const sequence = frame.startsWith(':') ? undefined : sequenceOf(frame, next);
    next = (sequence ?? next - 1) + 1;
    run.log.append({ sequence, item: bytes, bytes: bytes.length });
  }
}

/** The provider's own number, or the place of the event where there is none. */
function sequenceOf(frame: string, place: number): number {
  const providerSequence = /"sequence_number":\s*(\d{1,15})[,}\s]/.exec(frame)?.[1];
  return providerSequence === undefined ? place : Number(providerSequence);
}

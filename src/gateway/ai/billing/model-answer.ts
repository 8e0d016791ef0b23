// Counts the answer of a language model for its bill, and settles a streamed
// call before its last part.
import type { Answer, StreamPart } from '../hub/language-model.ts';
import { hubClaim } from '../metering/token-count.ts';
import type { StreamRate } from '../upstream/stream-rate.ts';
import type { Bill } from './bill.ts';

interface FollowOptions {
  bill: Bill;
  /** The caller's signal. */
  signal: AbortSignal;
  /** Absent for a model without a limit. */
  rate?: StreamRate | undefined;
}

/**
 * Yields the parts unchanged, except the finish: it waits for the settlement and
 * carries the charged credits.
 */
export async function* followParts(
  parts: AsyncIterable<StreamPart>,
  { bill, signal, rate }: FollowOptions,
): AsyncGenerator<StreamPart> {
  let hasFailed = false;
  const streamedCallIds = new Set<string>();
  // A `for await` loop would close the stream when the reader stops. The loop below keeps it open, so
  // that `readUsage` can read the provider's usage from it.
  const source = parts[Symbol.asyncIterator]();
  try {
    for (;;) {
      rate?.startWait();
      const next = await source.next();
      rate?.endWait();
      if (next.done === true) break;
      const part = next.value;
      countPart(part, bill, streamedCallIds);
      if (part.type !== 'finish') rate?.check();
      if (part.type === 'error') {
        hasFailed = true;
        bill.noteFailure(part.error);
      }
      if (part.type === 'finish') {
        hasFailed ||= part.finishReason.unified === 'error';
        // Until the first part is forwarded, the call can still fail with an error status, without a charge.
        if (!hasFailed || bill.phase !== 'sent') {
          const credits = await bill.settle(hasFailed ? 'upstream_failed' : 'completed');
          yield { ...part, providerMetadata: { ...part.providerMetadata, townhall: { credits } } };
          continue;
        }
      }
      yield part;
    }
    await settleStream(bill, 'upstream_failed');
  } catch (error) {
    bill.noteFailure(error);
    if (!signal.aborted) await settleStream(bill, 'upstream_failed');
    throw error;
  } finally {
    try {
      await readUsage(source, bill, streamedCallIds);
      // The call is still unsettled if the reader stopped early, because the caller disconnected or the
      // format ends its stream at an error part.
      await settleStream(bill, hasFailed ? 'upstream_failed' : 'client_closed');
    } finally {
      await source.return?.();
    }
  }
}

/**
 * Settles a stream whose first part was forwarded. Before that, the call fails with an error status and
 * without a charge.
 */
async function settleStream(bill: Bill, outcome: 'upstream_failed' | 'client_closed'): Promise<void> {
  if (bill.phase === 'streaming') await bill.settle(outcome);
}

function countPart(part: StreamPart, bill: Bill, streamedCallIds: Set<string>): void {
  switch (part.type) {
    case 'text-delta':
    case 'tool-input-delta':
      bill.countText('output', Buffer.byteLength(part.delta));
      break;
    case 'reasoning-delta':
      bill.countText('reasoning', Buffer.byteLength(part.delta));
      break;
    case 'tool-input-start':
      streamedCallIds.add(part.id);
      break;
    case 'tool-call':
      if (!streamedCallIds.has(part.toolCallId)) bill.countText('output', Buffer.byteLength(part.input));
      break;
    case 'finish':
      bill.recordUsage(hubClaim(part.usage));
      break;
    default:
      break;
  }
}

// The bill aborts the upstream request after 2 s, which ends this loop.
async function readUsage(
  source: AsyncIterator<StreamPart>,
  bill: Bill,
  streamedCallIds: Set<string>,
): Promise<void> {
  try {
    while (bill.awaitsUsage) {
      const next = await source.next();
      if (next.done === true) return;
      countPart(next.value, bill, streamedCallIds);
    }
  } catch {
    // The call is charged by the parts that were read.
  }
}

/** Counts a whole answer. */
export function countAnswer(bill: Bill, { content, usage }: Answer): void {
  for (const part of content) {
    if (part.type === 'text') bill.countText('output', Buffer.byteLength(part.text));
    else if (part.type === 'reasoning') bill.countText('reasoning', Buffer.byteLength(part.text));
    else if (part.type === 'tool-call') bill.countText('output', Buffer.byteLength(part.input));
  }
  bill.recordUsage(hubClaim(usage));
}

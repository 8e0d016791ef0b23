// Counts the parts of a streamed answer and settles the call before its last part.
import type { Answer, StreamPart } from '../hub/language-model.ts';
import type { Meter } from './meter.ts';
import { hubClaim } from './token-count.ts';

/** Yields the parts unchanged, except the finish: it waits for the settlement and carries the charged credits. */
export async function* meteredParts(
  parts: AsyncIterable<StreamPart>,
  meter: Meter,
  signal: AbortSignal,
): AsyncGenerator<StreamPart> {
  let hasFailed = false;
  const streamedCallIds = new Set<string>();
  // Iterate by hand, so that the stream can still be read for its usage after the reader has stopped.
  const source = parts[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await source.next();
      if (next.done === true) break;
      const part = next.value;
      countPart(part, meter, streamedCallIds);
      if (part.type === 'error') hasFailed = true;
      if (part.type === 'finish') {
        hasFailed ||= part.finishReason.unified === 'error';
        // Before the first part the answer can still be an error status, and then costs nothing.
        if (!hasFailed || meter.isAccepted) {
          const credits = await meter.settle(hasFailed ? 'upstream_failed' : 'completed');
          yield { ...part, providerMetadata: { ...part.providerMetadata, townhall: { credits } } };
          continue;
        }
      }
      yield part;
    }
    if (meter.isAccepted) await meter.settle('upstream_failed');
  } catch (error) {
    if (meter.isAccepted && !signal.aborted) await meter.settle('upstream_failed');
    throw error;
  } finally {
    await readUsage(source, meter, streamedCallIds);
    // Still unsettled if the reader stopped early: the caller disconnected, or the format ends at an error.
    if (meter.isAccepted) await meter.settle(hasFailed ? 'upstream_failed' : 'client_closed');
    await source.return?.();
  }
}

function countPart(part: StreamPart, meter: Meter, streamedCallIds: Set<string>): void {
  switch (part.type) {
    case 'text-delta':
    case 'tool-input-delta':
      meter.produced('output', Buffer.byteLength(part.delta));
      break;
    case 'reasoning-delta':
      meter.produced('reasoning', Buffer.byteLength(part.delta));
      break;
    case 'tool-input-start':
      streamedCallIds.add(part.id);
      break;
    case 'tool-call':
      if (!streamedCallIds.has(part.toolCallId)) meter.produced('output', Buffer.byteLength(part.input));
      break;
    case 'finish':
      meter.claims(hubClaim(part.usage));
      break;
    default:
      break;
  }
}

// The meter aborts the upstream request after 2 s, which ends this loop.
async function readUsage(
  source: AsyncIterator<StreamPart>,
  meter: Meter,
  streamedCallIds: Set<string>,
): Promise<void> {
  try {
    while (meter.awaitsUsage) {
      const next = await source.next();
      if (next.done === true) return;
      countPart(next.value, meter, streamedCallIds);
    }
  } catch {
    // The call is charged by what came before.
  }
}

/** Records a complete answer with the meter. */
export function meterAnswer(meter: Meter, { content, usage }: Answer): void {
  for (const part of content) {
    if (part.type === 'text') meter.produced('output', Buffer.byteLength(part.text));
    else if (part.type === 'reasoning') meter.produced('reasoning', Buffer.byteLength(part.text));
    else if (part.type === 'tool-call') meter.produced('output', Buffer.byteLength(part.input));
  }
  meter.claims(hubClaim(usage));
}

// The parts of a streamed answer on their way through the meter: counted as they pass, settled before the last one.
import type { Answer, StreamPart } from '../model.ts';
import type { Meter } from './meter.ts';
import { hubClaim } from './token-count.ts';

/** The same parts. The finish leaves only when it is paid for, and says what that was. */
export async function* meteredParts(parts: AsyncIterable<StreamPart>, meter: Meter, signal: AbortSignal): AsyncGenerator<StreamPart> {
  let hasFailed = false;
  const streamed = new Set<string>();
  try {
    for await (const part of parts) {
      switch (part.type) {
        case 'text-delta':
          meter.produced('output', Buffer.byteLength(part.delta));
          break;
        case 'reasoning-delta':
          meter.produced('reasoning', Buffer.byteLength(part.delta));
          break;
        case 'tool-input-start':
          streamed.add(part.id);
          break;
        case 'tool-input-delta':
          meter.produced('output', Buffer.byteLength(part.delta));
          break;
        case 'tool-call':
          if (!streamed.has(part.toolCallId)) meter.produced('output', Buffer.byteLength(part.input));
          break;
        case 'error':
          hasFailed = true;
          break;
        case 'finish': {
          hasFailed ||= part.finishReason.unified === 'error';
          meter.claims(hubClaim(part.usage));
          // Whoever has heard nothing yet may still be told with a status, and pays nothing then.
          if (hasFailed && !meter.isAccepted) break;
          const credits = await meter.settle(hasFailed ? 'upstream_failed' : 'completed');
          yield { ...part, providerMetadata: { ...part.providerMetadata, townhall: { credits } } };
          continue;
        }
        default:
          break;
      }
      yield part;
    }
    if (meter.isAccepted) await meter.settle('upstream_failed');
  } catch (thrown) {
    if (meter.isAccepted && !signal.aborted) await meter.settle('upstream_failed');
    throw thrown;
  } finally {
    // Only who reads no further gets here unsettled: our caller, or a format that ends with the error.
    if (meter.isAccepted) await meter.settle(hasFailed ? 'upstream_failed' : 'client_closed');
  }
}

/** Tells the meter of a whole answer. */
export function meterAnswer(meter: Meter, { content, usage }: Answer): void {
  for (const part of content) {
    if (part.type === 'text') meter.produced('output', Buffer.byteLength(part.text));
    else if (part.type === 'reasoning') meter.produced('reasoning', Buffer.byteLength(part.text));
    else if (part.type === 'tool-call') meter.produced('output', Buffer.byteLength(part.input));
  }
  meter.claims(hubClaim(usage));
}

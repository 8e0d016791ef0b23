// The output of one attempt so far, and its reported usage. Each attempt starts from
// zero, because a failed attempt is not charged.
import type { Claim } from '../metering/token-count.ts';
import type { Units } from '../metering/price.ts';

export type TextKind = 'output' | 'reasoning';

export interface Progress {
  /**
   * Bytes of text, converted to tokens in total: rounding each piece would depend on
   * how the stream splits them.
   */
  bytes: Record<TextKind, number>;
  /** When the request was sent, if the model reasons before it answers. */
  reasoningSinceMs: number | undefined;
  /** When the first piece of the answer arrived, by the monotonic clock. */
  firstMs: number | null;
  /**
   * Whether the answer is complete, so that only its usage and the end of the stream may follow.
   */
  isComplete: boolean;
  /** The latest usage that the provider reported. */
  claim: Claim | undefined;
  media: { units: Units; estimated: boolean };
  /** The bytes of text and the time of the latest checkpoint. */
  checkpoint: { bytes: number; atMs: number };
}

export function newProgress(reasoningSinceMs?: number): Progress {
  return {
    reasoningSinceMs,
    bytes: { output: 0, reasoning: 0 },
    firstMs: null,
    isComplete: false,
    claim: undefined,
    media: { units: {}, estimated: false },
    checkpoint: { bytes: 0, atMs: Number.NEGATIVE_INFINITY },
  };
}

// The ledger writes a checkpoint every 2 s or 256 tokens. Pricing a checkpoint costs more than counting a
// piece of a stream, so one is taken only after this time or this much text, whichever comes first.
const checkpointMs = 250;
const checkpointBytes = 256;

/** Whether it is time for a checkpoint of the price. If so, records the checkpoint as taken. */
export function takeCheckpoint({ bytes, checkpoint }: Progress, nowMs: number): boolean {
  const totalBytes = bytes.output + bytes.reasoning;
  if (totalBytes - checkpoint.bytes < checkpointBytes && nowMs - checkpoint.atMs < checkpointMs) return false;
  checkpoint.bytes = totalBytes;
  checkpoint.atMs = nowMs;
  return true;
}

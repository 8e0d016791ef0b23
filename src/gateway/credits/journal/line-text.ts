// Lines of the journal as JSON text and back. Credits are decimal strings,
// since JSON has no bigint.
import { isRecord } from '../../../kernel/json-value.ts';
import type { UsageFacts } from '../../usage/index.ts';
import type { FreeCall, PaidCall } from '../core/ports.ts';
import type { ChargeLine, JournalLine } from './journal.ts';

export function lineToText(line: JournalLine): string {
  return JSON.stringify({ ...line, credits: String(line.credits) });
}

/**
 * Null for JSON of another format, such as the format of a newer release. Throws for text that is not JSON; a
 * torn line does not get here, because its frame fails the checksum.
 */
export function textToLine(text: string): JournalLine | null {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value) || typeof value['usageId'] !== 'string' || !isRecord(value['facts'])) return null;
  if (typeof value['credits'] !== 'string' || !/^\d{1,19}$/.test(value['credits'])) return null;
  const { usageId, kind, call, allotmentId = null } = value;
  const credits = BigInt(value['credits']);
  const facts = value['facts'];
  if (kind === 'checkpoint') return { kind, usageId, credits, facts };
  if (!isCall(call) || (allotmentId !== null && typeof allotmentId !== 'string')) return null;
  if (kind === 'sent') return { kind, usageId, call, allotmentId, credits, facts };
  if (kind === 'final' && isComplete(facts)) return { kind, usageId, call, allotmentId, credits, facts };
  return null;
}

type SentLine = Extract<JournalLine, { kind: 'sent' }>;
type CheckpointLine = Extract<JournalLine, { kind: 'checkpoint' }>;

/**
 * The charge of a call that was sent and has no final line because its process was killed: the price of the
 * input or, if a checkpoint followed, the price of the input and the output until then. The contract has no
 * outcome for a killed gateway, so the outcome is `upstream_failed`.
 */
export function estimateOf(
  start: SentLine,
  checkpoint: CheckpointLine | null,
): Extract<JournalLine, { kind: 'final' }> {
  const { usageId, call, allotmentId } = start;
  const credits =
    checkpoint !== null && checkpoint.credits > start.credits ? checkpoint.credits : start.credits;
  const facts: UsageFacts = {
    action: call.action,
    model: call.model,
    provider: call.provider,
    tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
    units: {},
    ttftMs: null,
    durationMs: 0,
    ...start.facts,
    ...checkpoint?.facts,
    outcome: 'upstream_failed',
    estimated: true,
  };
  return { kind: 'final', usageId, call, allotmentId, credits, facts };
}

export function toCharge(seq: number, line: Extract<JournalLine, { kind: 'final' }>): ChargeLine {
  const { usageId, call, allotmentId, credits, facts } = line;
  return { seq, usageId, call, allotmentId, credits, facts };
}

function isCall(value: unknown): value is PaidCall | FreeCall {
  return (
    isRecord(value) &&
    typeof value['requestId'] === 'string' &&
    typeof value['tokenId'] === 'string' &&
    typeof value['action'] === 'string' &&
    isIdOrNull(value['userId']) &&
    isIdOrNull(value['bureauId']) &&
    (value['userId'] === null) === (value['bureauId'] === null)
  );
}

function isIdOrNull(value: unknown): boolean {
  return value === null || typeof value === 'string';
}

function isComplete(facts: Partial<UsageFacts>): facts is UsageFacts {
  return typeof facts.action === 'string' && isRecord(facts.tokens) && typeof facts.outcome === 'string';
}

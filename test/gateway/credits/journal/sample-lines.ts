// Lines as the ledger writes them.
import type { JournalLine } from '../../../../src/gateway/credits/journal/journal.ts';
import type { PaidCall } from '../../../../src/gateway/credits/core/ports.ts';
import type { UsageFacts } from '../../../../src/gateway/usage/index.ts';

export const sampleCall: PaidCall = {
  requestId: 'req_1',
  userId: 'usr_1',
  bureauId: 'bur_1',
  tokenId: 'tok_1',
  action: 'text',
  model: 'fast',
  provider: 'local',
};

export const sampleFacts: UsageFacts = {
  action: 'text',
  model: 'fast',
  provider: 'local',
  tokens: { input: 12, cachedInput: 0, cacheWrite: 0, output: 34, reasoning: 0 },
  units: {},
  outcome: 'completed',
  estimated: false,
  ttftMs: 5,
  durationMs: 60,
};

export function sentLine(usageId: string, credits = 3n): JournalLine {
  return { kind: 'sent', usageId, call: sampleCall, allotmentId: 'alt_1', credits, facts: {} };
}

export function checkpointLine(usageId: string, credits: bigint): JournalLine {
  return { kind: 'checkpoint', usageId, credits, facts: { durationMs: 7 } };
}

export function finalLine(usageId: string, credits = 46n): JournalLine {
  return { kind: 'final', usageId, call: sampleCall, allotmentId: 'alt_1', credits, facts: sampleFacts };
}

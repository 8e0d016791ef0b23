// Inserts usage records with the SQL function of the ledger, at times that a test chooses.
import { id } from '../../../src/kernel/ids.ts';
import type { Sql } from '../../../src/kernel/data/database.ts';

export const sampleTokenId = `tok_${'0'.repeat(26)}`;

export interface SampleRecord {
  userId: string | null;
  bureauId?: string | null;
  requestId?: string;
  action?: string;
  model?: string | null;
  provider?: string;
  /** Overrides of the facts. */
  facts?: object;
  at?: string;
  credits?: number;
}

/** Inserts a record; resolves with its id. */
export async function insertRecord(sql: Sql, record: SampleRecord): Promise<string> {
  const { model = 'acme/fast', at = '2026-03-10T12:00:00Z', credits = 10 } = record;
  const call = {
    request_id: record.requestId ?? id('req'),
    user_id: record.userId,
    bureau_id: record.bureauId === undefined ? 'local' : record.bureauId,
    token_id: sampleTokenId,
    action: record.action ?? 'text',
    model,
    provider: model === null ? null : (record.provider ?? 'acme'),
  };
  const facts = {
    tokens: { input: 5, cachedInput: 1, cacheWrite: 2, output: 3, reasoning: 4 },
    units: {},
    outcome: 'completed',
    estimated: false,
    ttftMs: 7,
    durationMs: 70,
    ...record.facts,
  };
  const usageId = id('use');
  await sql`
    select gateway.usage_add(${usageId}, ${JSON.stringify(call)}::text::jsonb,
      ${JSON.stringify(facts)}::text::jsonb, ${credits})`;
  await sql`
    update gateway.usage_records set created_at = ${at}::text::timestamptz where usage_id = ${usageId}`;
  return usageId;
}

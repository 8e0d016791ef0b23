// A process with a ledger of its own instead of a whole gateway, for the fault runs. Each message
// is a task; the process answers with the outcomes of the task's calls. It has no shutdown, since
// the runs kill it.
import { setTimeout as sleep } from 'node:timers/promises';
import {
  credits,
  creditsStore,
  journalDirectory,
  settlementJournal,
  sqlAllotmentStore,
  type Credits,
} from '../../src/gateway/credits/index.ts';
import type { UsageFacts } from '../../src/gateway/usage/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { connect, type ConnectOptions, type Database } from '../../src/kernel/data/database.ts';
import { id } from '../../src/kernel/ids.ts';
import { Problem } from '../../src/kernel/problem.ts';
import { silentLog } from '../support/template.ts';

export interface LedgerLocation {
  database: ConnectOptions;
  journal: string;
  /** Shorter leases, for a run that must not wait as long as the defaults require. */
  times?: NonNullable<Parameters<typeof credits>[0]['times']>;
}

/**
 * `calls` concurrent calls. Each reserves `bound` credits and costs `price`, or a random part of
 * the bound when the price is null.
 */
export interface Task {
  userIds: string[];
  calls: number;
  bound: number;
  price: number | null;
  /** Longest duration of a call in milliseconds. */
  slowMs: number;
}

export interface TaskResult {
  granted: number;
  refused: number;
  /** Calls that failed for other reasons than missing credits, by error code. */
  failed: Record<string, number>;
  charged: number;
}

export async function openLedger({
  database: options,
  journal,
  times,
}: LedgerLocation): Promise<{ database: Database; service: Credits }> {
  const database = await connect(options, { log: silentLog });
  const service = credits({
    store: creditsStore(database),
    allotmentStore: sqlAllotmentStore(database),
    journal: settlementJournal(journal),
    journals: journalDirectory({ path: journal, log: silentLog }),
    users: { findUser: async () => null, endedTokens: async () => [] },
    audit: { record: async () => undefined },
    usage: { total: async () => ({ credits: 0n }) },
    log: silentLog,
    clock: systemClock,
    isAlone: database.engine === 'embedded',
    startingCredits: 0n,
    retentionDays: 400,
    times: times ?? {},
  });
  await service.start();
  return { database, service };
}

export async function runTask(
  { ledger }: Pick<Credits, 'ledger'>,
  { userIds, calls, bound, price, slowMs }: Task,
): Promise<TaskResult> {
  const result: TaskResult = { granted: 0, refused: 0, failed: {}, charged: 0 };
  await Promise.all(
    Array.from({ length: calls }, async (_, index) => {
      try {
        const userId = userIds[index % userIds.length] as string;
        const reservation = await ledger.reserve(
          {
            requestId: id('req'),
            userId,
            bureauId: 'local',
            tokenId: 'tok_fault',
            action: 'text',
            model: 'acme/fast',
            provider: 'acme',
          },
          BigInt(bound),
        );
        reservation.markSent({ model: 'acme/fast', provider: 'acme', inputCredits: 1n, facts: {} });
        if (slowMs > 0) await sleep(Math.random() * slowMs);
        const credits = BigInt(price ?? 1 + Math.floor(Math.random() * bound));
        const { charged } = await reservation.settle(credits, facts);
        result.granted += 1;
        result.charged += Number(charged);
      } catch (error) {
        if (error instanceof Problem && error.status === 402) result.refused += 1;
        else result.failed[codeOf(error)] = (result.failed[codeOf(error)] ?? 0) + 1;
      }
    }),
  );
  return result;
}

export const facts: UsageFacts = {
  action: 'text',
  model: 'acme/fast',
  provider: 'acme',
  units: {},
  outcome: 'completed',
  estimated: false,
  ttftMs: 1,
  durationMs: 2,
  tokens: { input: 1, cachedInput: 0, cacheWrite: 0, output: 1, reasoning: 0 },
};

function codeOf(error: unknown): string {
  return error instanceof Problem ? error.code : String(error);
}

if (process.argv[2] === 'serve') {
  const { service } = await openLedger(JSON.parse(process.argv[3] ?? '{}') as LedgerLocation);
  process.on('message', (task: Task) => void runTask(service, task).then((result) => process.send?.(result)));
  process.send?.('ready');
}

// The operations of `credits`: users read their balance and its history, administrators read all
// balances, grant and deduct.
import type { Balance, CreditAccount, CreditChange } from '../../contract/gateway/types.gen.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf } from '../identity.ts';
import type { Service } from '../service.ts';
import { userNotFound } from './balances.ts';
import type { PaidLedger } from './paid-ledger.ts';
import type { Balances } from './core/ports.ts';
import type { Account, Change, ChangeCursor, CreditsStore } from './core/store.ts';

export interface HandlerOptions {
  store: CreditsStore;
  ledger: Pick<PaidLedger, 'report' | 'reportEverywhere'>;
  balances: Balances;
  users: { findUser(userId: string): Promise<{ state: string } | null> };
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  usage: CallTotals;
}

/** The sums over usage records. */
export interface CallTotals {
  total(filter: { userId: string }): Promise<{ credits: bigint }>;
}

export function creditsHandlers(options: HandlerOptions): Service<'credits'>['handlers'] {
  const { store, ledger, balances } = options;
  return {
    'credits.getBalance': async ({ identity: { userId } }) => {
      await ledger.reportEverywhere(userId);
      const account = await store.findAccount(userId);
      const body = serializeBalance(account ?? { accountId: userId, posted: 0n, held: 0n, owed: 0n });
      return { status: 200, body };
    },
    'credits.getSdkCredits': async ({ identity: { userId } }) => {
      await ledger.reportEverywhere(userId);
      const [account, calls] = await Promise.all([
        store.findAccount(userId),
        options.usage.total({ userId }),
      ]);
      const available = account === null ? 0n : account.posted - account.held;
      return {
        status: 200,
        body: { balance: formatDollars(available), total_used: formatDollars(calls.credits) },
      };
    },
    'credits.listHistory': async ({ identity, query }) => {
      const before = query.cursor === undefined ? null : decodeCursor(query.cursor, isChangeCursor);
      const limit = pageLimit(query);
      await ledger.reportEverywhere(identity.userId);
      const { items, next_cursor } = pageOf(
        await store.listChanges(identity.userId, { before, limit }),
        limit,
        ({ txId, line }) => [String(txId), line],
      );
      return { status: 200, body: { items: items.map(serializeChange), next_cursor } };
    },
    'credits.grantCredits': (call) =>
      adjust(options, call, (tx, entry) => balances.post(tx, { ...entry, kind: 'grant' })),
    'credits.deductCredits': (call) =>
      adjust(options, call, (tx, entry) =>
        balances.takeBack(tx, { ...entry, kind: 'deduct', partial: false }),
      ),
    'credits.listAccounts': async ({ identity, query }) => {
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
      const limit = pageLimit(query);
      await ledger.reportEverywhere();
      const accounts = await store.listAccounts(
        { bureauId: identity.bureauId ?? query.bureau_id },
        { after, limit },
      );
      const { items, next_cursor } = pageOf(accounts, limit, ({ accountId }) => accountId);
      return { status: 200, body: { items: items.map(serializeAccount), next_cursor } };
    },
  };
}

/**
 * Changes a balance for an administrator. The audit entry, and the answer that is stored for the
 * request's Idempotency-Key, commit in the transaction of the change.
 */
async function adjust(
  { store, users, audit, ledger, balances }: HandlerOptions,
  call: AdjustCall,
  change: (tx: Tx, entry: Adjustment) => Promise<unknown>,
): Promise<{ status: 200; body: CreditAccount }> {
  const { user_id: userId, credits: amount, reason } = call.body;
  const user = await users.findUser(userId);
  if (user === null || user.state === 'removed') throw userNotFound();
  if (call.operationId === 'credits.deductCredits') await balances.recallIdle(userId);
  // The answer contains the account, so the charges of this process are written first.
  else await ledger.report(userId);
  return store.tx(async (tx) => {
    await change(tx, { userId, ref: call.requestId, credits: BigInt(amount), reason });
    const account = await store.findAccount(userId, tx);
    if (account === null) throw userNotFound();
    await audit.record(tx, {
      ...originOf(call),
      action: call.operationId,
      target: { kind: 'user', id: userId },
      outcome: 'ok',
      diff: { credits: amount, reason },
    });
    const answer = { status: 200 as const, body: serializeAccount(account) };
    await call.remember(tx, answer);
    return answer;
  });
}

type Adjustment = { userId: string; ref: string; credits: bigint; reason: string };

/** The members of a request that grant and deduct use. */
interface AdjustCall {
  operationId: string;
  body: { user_id: string; credits: number; reason: string };
  identity: Parameters<typeof originOf>[0]['identity'];
  remoteAddress: string;
  requestId: string;
  remember(tx: Tx, answer: { status: number; body?: unknown }): Promise<void>;
}

function isChangeCursor(value: unknown): value is ChangeCursor {
  if (!Array.isArray(value) || value.length !== 2) return false;
  const [txId, line] = value as unknown[];
  return typeof txId === 'string' && /^\d{1,18}$/.test(txId) && isCursorText(line);
}

// JSON numbers are exact up to 2^53. The contract limits a grant to 10^12 credits, so a balance gets there
// only after 9,000 of the largest grants.
function serializeBalance(account: Pick<Account, 'accountId' | 'posted' | 'held' | 'owed'>): Balance {
  return {
    user_id: account.accountId,
    available: Number(account.posted - account.held),
    held: Number(account.held),
    posted: Number(account.posted),
    owed: Number(account.owed),
  };
}

/** 1,000,000 credits are one US dollar. */
function formatDollars(credits: bigint): string {
  const digits = String(credits < 0n ? 0n : credits).padStart(7, '0');
  return `${digits.slice(0, -6)}.${digits.slice(-6)}`;
}

function serializeAccount(account: Account): CreditAccount {
  return {
    ...serializeBalance(account),
    bureau_id: account.bureauId,
    created_at: account.createdAt.toISOString(),
  };
}

function serializeChange({ kind, ref, credits: amount, reason, createdAt }: Change): CreditChange {
  return {
    kind: kind as CreditChange['kind'],
    ref,
    credits: Number(amount),
    reason,
    created_at: createdAt.toISOString(),
  };
}

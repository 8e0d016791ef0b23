// Allotments and charges in the database. The rules are functions of the migrations 0064 and 0065; here are their parameters.
import type { Database } from '../../../kernel/data/database.ts';
import type { ChargeLine } from '../journal/journal.ts';
import type {
  AllotmentReport,
  AllotmentRow,
  AllotmentScope,
  AllotmentStore,
  AllotmentView,
  AllotRequest,
  AllotResult,
  ApplyResult,
  ChargeBatch,
  GiveBackRequest,
} from './store.ts';

/** The SQL functions as an AllotmentStore. Its methods reject with 503 `database_unavailable`; they may have committed then. */
export function sqlAllotmentStore(database: Pick<Database, 'sql'>): AllotmentStore {
  const { sql } = database;
  return {
    allot: (request) => allot(database, request),
    giveBack: (requests) => giveBack(database, requests),
    async ofGateway(gatewayId) {
      return [
        ...(await sql<AllotmentRow[]>`
        select ${rowColumns(database)} from gateway.credits_allotments
        where gateway_id = ${gatewayId} and ended_at is null order by allotment_id`),
      ];
    },
    async read(allotmentIds) {
      if (allotmentIds.length === 0) return [];
      return [
        ...(await sql<AllotmentRow[]>`
        select ${rowColumns(database)} from gateway.credits_allotments
        where allotment_id = any(${[...allotmentIds]}::text[]) and ended_at is null order by allotment_id`),
      ];
    },
    renew: (gatewayId, reports, leaseMs) => renew(database, gatewayId, reports, leaseMs),
    async recall({ ticket, gatewayId, userId, tokenId, need }) {
      await sql`select gateway.credits_recall(${ticket}, ${gatewayId}, ${userId}, ${tokenId}, ${need})`;
    },
    async recalled(gatewayId) {
      return [
        ...(await sql<AllotmentRow[]>`
        select ${rowColumns(database)} from gateway.credits_allotments
        where gateway_id = ${gatewayId} and ended_at is null and (is_recalled or is_closed) order by allotment_id`),
      ];
    },
    close: (scope) => close(database, scope),
    async affordable({ gatewayId, userId, tokenId, ticket }) {
      const [row] = await sql<{ available: bigint; idleElsewhere: bigint }[]>`
        select available, reach - available as "idleElsewhere"
        from gateway.credits_reach(${gatewayId}, ${userId}, ${tokenId}, ${ticket ?? null})`;
      return row === undefined ? { available: 0n, idleElsewhere: 0n } : { ...row };
    },
    applyCharges: (batch) => applyCharges(database, batch),
    async appliedSeqs(journalIds) {
      if (journalIds.length === 0) return new Map();
      const rows = await sql<{ journalId: string; appliedSeq: bigint }[]>`
        select journal_id as "journalId", applied_seq as "appliedSeq" from gateway.credits_journals
        where journal_id = any(${[...journalIds]}::text[])`;
      return new Map(rows.map(({ journalId, appliedSeq }) => [journalId, Number(appliedSeq)]));
    },
    async openJournal(journalId, generation) {
      await sql`insert into gateway.credits_journals (journal_id, generation) values (${journalId}, ${generation}) on conflict do nothing`;
    },
    async takeBackExpired(limit) {
      return [
        ...(await sql<{ allotmentId: string; amount: bigint }[]>`
        select allotment_id as "allotmentId", amount from gateway.credits_take_back_expired(${limit}) order by 1`),
      ];
    },
    async generation() {
      const [row] = await sql<{ generation: string }[]>`select generation::text from gateway.credits_ledger`;
      if (row === undefined) throw new Error('The ledger has no generation.');
      return row.generation;
    },
    async listAllotments(userId) {
      return [
        ...(await sql<AllotmentView[]>`
        select ${rowColumns(database)}, reserved, unapplied, gateway_id as "gatewayId", token_id as "tokenId",
          lease_until as "leaseUntil", created_at as "createdAt", reported_at as "reportedAt"
        from gateway.credits_allotments where account_id = ${userId} and ended_at is null order by allotment_id`),
      ];
    },
    async dropOld(days, limit) {
      const dropped = await sql`
        delete from gateway.credits_allotments where allotment_id in (
          select allotment_id from gateway.credits_allotments
          where ended_at < gateway.townhall_now() - make_interval(days => ${days})
          order by ended_at limit ${limit} for update skip locked)`;
      return dropped.count;
    },
  };
}

type OwnSql = Pick<Database, 'sql'>;

async function allot({ sql }: OwnSql, request: AllotRequest): Promise<AllotResult> {
  const { allotmentId, version, gatewayId, generation, userId, bureauId, tokenId, need, want } = request;
  const [result] = await sql<(Nullable<AllotmentRow> & Omit<AllotResult, 'row'>)[]>`
    select outcome, version, amount, is_recalled as "isRecalled", is_closed as "isClosed", available, idle_elsewhere as "idleElsewhere"
    from gateway.credits_allot(${allotmentId}, ${version}, ${gatewayId}, ${generation}, ${userId}, ${bureauId}, ${tokenId},
      ${need}, ${want}, ${request.leaseMs / 1_000}, ${request.ticket ?? null})`;
  if (result === undefined) throw new Error('An allotment has no answer.');
  const { outcome, available, idleElsewhere, ...row } = result;
  return { outcome, row: toRow({ ...row, allotmentId }), available, idleElsewhere };
}

async function giveBack(
  { sql }: OwnSql,
  requests: readonly GiveBackRequest[],
): Promise<(AllotmentRow | null)[]> {
  if (requests.length === 0) return [];
  const rows = await sql<(AllotmentRow & { place: bigint })[]>`
    select place, allotment_id as "allotmentId", version, amount, is_recalled as "isRecalled", is_closed as "isClosed"
    from gateway.credits_give_back(${requests.map(({ allotmentId }) => allotmentId)}::text[],
      ${requests.map(({ version }) => version)}::integer[], ${requests.map(({ amount }) => amount)}::bigint[],
      ${requests.map(({ end }) => end)}::boolean[])`;
  const byPlace = new Map(rows.map(({ place, ...row }) => [Number(place), row]));
  return requests.map((_, index) => byPlace.get(index + 1) ?? null);
}

async function renew(
  { sql }: OwnSql,
  gatewayId: string,
  reports: readonly AllotmentReport[],
  leaseMs: number,
): Promise<AllotmentRow[]> {
  if (reports.length === 0) return [];
  return [
    ...(await sql<AllotmentRow[]>`
    select allotment_id as "allotmentId", version, amount, is_recalled as "isRecalled", is_closed as "isClosed"
    from gateway.credits_renew(${gatewayId}, ${reports.map(({ allotmentId }) => allotmentId)}::text[],
      ${reports.map(({ reserved }) => reserved)}::bigint[], ${reports.map(({ unapplied }) => unapplied)}::bigint[], ${leaseMs / 1_000})`),
  ];
}

async function close({ sql }: OwnSql, scope: AllotmentScope): Promise<number> {
  const [userId, tokenId, bureauId] = [
    'userId' in scope ? scope.userId : null,
    'tokenId' in scope ? scope.tokenId : null,
    'bureauId' in scope ? scope.bureauId : null,
  ];
  const [row] = await sql<{ open: number }[]>`
    select gateway.credits_close(${userId}, ${tokenId}, ${bureauId}) as open`;
  return row?.open ?? 0;
}

async function applyCharges({ sql }: OwnSql, batch: ChargeBatch): Promise<ApplyResult> {
  const { journalId, generation, expectedSeq, toSeq, charges } = batch;
  const [result] = await sql<
    {
      outcome: ApplyResult['outcome'];
      appliedSeq: bigint;
      charged: bigint[] | null;
      overruns: bigint[] | null;
      lates: boolean[] | null;
      allotments: (Omit<AllotmentRow, 'amount'> & { amount: string })[];
    }[]
  >`
    select outcome, applied_seq as "appliedSeq", charged, overruns, lates, allotments
    from gateway.credits_apply_charges(${journalId}, ${generation}, ${expectedSeq}, ${toSeq},
      ${JSON.stringify(charges.map(serializeCharge))}::text::jsonb, ${JSON.stringify((batch.reports ?? []).map(serializeReport))}::text::jsonb)`;
  if (result === undefined) throw new Error('A batch of charges has no answer.');
  const { outcome, appliedSeq, charged, overruns, lates, allotments } = result;
  const isApplied = outcome === 'applied';
  return {
    outcome,
    appliedSeq: Number(appliedSeq),
    results: (isApplied ? charges : []).map(({ seq }, index) => ({
      seq,
      charged: charged?.[index] ?? 0n,
      overrun: overruns?.[index] ?? 0n,
      isLate: lates?.[index] ?? false,
    })),
    rows: allotments.map((row) => ({ ...row, amount: BigInt(row.amount) })),
  };
}

/** The JSON that `credits_apply_charges` reads. Credits as text: JSON numbers are exact up to 2^53 only. */
function serializeCharge({ seq, usageId, call, allotmentId, credits, facts }: ChargeLine): object {
  const { requestId, userId, bureauId, tokenId, action, model, provider } = call;
  return {
    seq,
    usage_id: usageId,
    allotment_id: allotmentId,
    credits: String(credits),
    call: {
      request_id: requestId,
      user_id: userId,
      bureau_id: bureauId,
      token_id: tokenId,
      action,
      model,
      provider,
    },
    facts,
  };
}

function serializeReport({ allotmentId, reserved, unapplied }: AllotmentReport): object {
  return { allotment_id: allotmentId, reserved: String(reserved), unapplied: String(unapplied) };
}

type Nullable<T> = { [K in keyof T]: T[K] | null };

function toRow({
  allotmentId,
  version,
  amount,
  isRecalled,
  isClosed,
}: Nullable<AllotmentRow>): AllotmentRow | null {
  if (allotmentId === null || version === null || amount === null) return null;
  return { allotmentId, version, amount, isRecalled: isRecalled === true, isClosed: isClosed === true };
}

function rowColumns({ sql }: OwnSql) {
  return sql`allotment_id as "allotmentId", version, amount, is_recalled as "isRecalled", is_closed as "isClosed"`;
}

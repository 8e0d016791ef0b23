// Allotments and charges in the database. The rules are functions of the migrations
// 0064 to 0066 and 0090; here are their parameters.
import type { Database } from '../../../kernel/data/database.ts';
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
  CoveredCharge,
  GatewayFlags,
  GiveBackRequest,
  RecallRequest,
} from './store.ts';

/**
 * An AllotmentStore of SQL functions. A method that rejects with 503 `database_unavailable` may
 * have committed nevertheless.
 */
export function sqlAllotmentStore(database: Pick<Database, 'sql'>): AllotmentStore {
  return {
    allot: (request) => allot(database, request),
    giveBack: (requests) => giveBack(database, requests),
    read: (allotmentIds) => readRows(database, allotmentIds),
    ofGateway: (gatewayId) => readRowsOfGateway(database, gatewayId),
    renew: (gatewayId, reports, leaseMs) => renew(database, gatewayId, reports, leaseMs),
    recall: (request) => recall(database, request),
    report: (gatewayId, reports, answerNumber) => report(database, gatewayId, reports, answerNumber),
    askReports: (gatewayId, userId) => askReports(database, gatewayId, userId),
    answeredReports: (gatewayIds) => readAnsweredReports(database, gatewayIds),
    flags: (gatewayId) => readFlags(database, gatewayId),
    close: (scope) => close(database, scope),
    affordable: (request) => readAffordable(database, request),
    applyCharges: (batch) => applyCharges(database, batch),
    appliedSeqs: (journalIds) => readAppliedSeqs(database, journalIds),
    openJournal: (journalId, generation) => openJournal(database, journalId, generation),
    takeBackExpired: (limit) => takeBackExpired(database, limit),
    generation: () => readGeneration(database),
    listAllotments: (userId) => listAllotments(database, userId),
    dropOld: (days, limit) => dropOld(database, days, limit),
  };
}

/**
 * Gives a restored ledger a new generation, so that journals written after its backup are
 * not applied to it, and ends its allotments, whose holders are gone or belong to another
 * generation. A backup of a release without generations gets one from its migration.
 */
export async function startNewGeneration({ sql }: Pick<Database, 'sql'>): Promise<void> {
  const [row] = await sql<{ hasLedger: boolean; hasFunction: boolean }[]>`
    select to_regclass('gateway.credits_ledger') is not null as "hasLedger",
      to_regprocedure('gateway.credits_begin_generation()') is not null as "hasFunction"`;
  if (row?.hasFunction === true) await sql`select gateway.credits_begin_generation()`;
  else if (row?.hasLedger === true)
    await sql`update gateway.credits_ledger set generation = gen_random_uuid()`;
}

type WithSql = Pick<Database, 'sql'>;

async function allot({ sql }: WithSql, request: AllotRequest): Promise<AllotResult> {
  const { allotmentId, version, gatewayId, generation, userId, bureauId, tokenId, need, want } = request;
  const [result] = await sql<(Nullable<AllotmentRow> & Omit<AllotResult, 'row'>)[]>`
    select outcome, version, amount, charged, recall, is_recalled as "isRecalled", is_closed as "isClosed",
      available, idle_elsewhere as "idleElsewhere"
    from gateway.credits_allot(
      ${allotmentId}, ${version}, ${gatewayId}, ${generation}, ${userId}, ${bureauId}, ${tokenId},
      ${need}, ${want}, ${request.leaseMs / 1_000}, ${request.ticket ?? null})`;
  if (result === undefined) throw new Error('The function credits_allot returned no row.');
  const { outcome, available, idleElsewhere, ...row } = result;
  return { outcome, row: toRow({ ...row, allotmentId }), available, idleElsewhere };
}

async function giveBack(
  { sql }: WithSql,
  requests: readonly GiveBackRequest[],
): Promise<(AllotmentRow | null)[]> {
  if (requests.length === 0) return [];
  // `place` is the position of the request, from 1.
  const rows = await sql<(AllotmentRow & { place: bigint })[]>`
    select place, ${rowColumns({ sql })}
    from gateway.credits_give_back(${requests.map(({ allotmentId }) => allotmentId)}::text[],
      ${requests.map(({ version }) => version)}::integer[], ${requests.map(({ amount }) => amount)}::bigint[],
      ${requests.map(({ end }) => end)}::boolean[], ${requests.map(({ charged }) => charged ?? null)}::bigint[],
      ${requests.map(({ recall }) => recall ?? null)}::bigint[])`;
  const rowsByPlace = new Map(rows.map(({ place, ...row }) => [Number(place), row]));
  return requests.map((_, index) => rowsByPlace.get(index + 1) ?? null);
}

async function readRows({ sql }: WithSql, allotmentIds: readonly string[]): Promise<AllotmentRow[]> {
  if (allotmentIds.length === 0) return [];
  const rows = await sql<AllotmentRow[]>`
    select ${rowColumns({ sql })} from gateway.credits_allotments
    where allotment_id = any(${[...allotmentIds]}::text[]) and ended_at is null
    order by allotment_id`;
  return [...rows];
}

async function readRowsOfGateway({ sql }: WithSql, gatewayId: string): Promise<AllotmentRow[]> {
  const rows = await sql<AllotmentRow[]>`
    select ${rowColumns({ sql })} from gateway.credits_allotments
    where gateway_id = ${gatewayId} and ended_at is null order by allotment_id`;
  return [...rows];
}

async function recall(
  { sql }: WithSql,
  { ticket, gatewayId, userId, tokenId, need }: RecallRequest,
): Promise<void> {
  await sql`select gateway.credits_recall(${ticket}, ${gatewayId}, ${userId}, ${tokenId}, ${need})`;
}

async function renew(
  { sql }: WithSql,
  gatewayId: string,
  reports: readonly AllotmentReport[],
  leaseMs: number,
): Promise<AllotmentRow[]> {
  const rows = await sql<AllotmentRow[]>`
    select ${rowColumns({ sql })}
    from gateway.credits_renew(${gatewayId}, ${serializeReports(reports)}::text::jsonb, ${leaseMs / 1_000})`;
  return [...rows];
}

async function report(
  { sql }: WithSql,
  gatewayId: string,
  reports: readonly AllotmentReport[],
  answerNumber: number | null,
): Promise<void> {
  if (reports.length === 0 && answerNumber === null) return;
  await sql`
    select gateway.credits_report(${gatewayId}, ${serializeReports(reports)}::text::jsonb, ${answerNumber})`;
}

/** False for a database of an older release, whose gateways do not number their reports. */
export async function canAskReports({ sql }: Pick<Database, 'sql'>): Promise<boolean> {
  const [row] = await sql<{ exists: boolean }[]>`
    select to_regprocedure('gateway.credits_ask_reports(text, text)') is not null as exists`;
  return row?.exists === true;
}

async function askReports(
  { sql }: WithSql,
  gatewayId: string | null,
  userId: string | null,
): Promise<Map<string, number>> {
  const rows = await sql<{ gatewayId: string; number: bigint }[]>`
    select gateway_id as "gatewayId", number from gateway.credits_ask_reports(${gatewayId}, ${userId})`;
  return new Map(rows.map((row) => [row.gatewayId, Number(row.number)]));
}

async function readAnsweredReports(
  { sql }: WithSql,
  gatewayIds: readonly string[],
): Promise<Map<string, number>> {
  const rows = await sql<{ gatewayId: string; number: bigint }[]>`
    select journal_id as "gatewayId", report_done as number from gateway.credits_journals
    where journal_id = any(${[...gatewayIds]}::text[])`;
  return new Map(rows.map((row) => [row.gatewayId, Number(row.number)]));
}

async function readFlags({ sql }: WithSql, gatewayId: string): Promise<GatewayFlags> {
  const rows = await sql<(Nullable<AllotmentRow> & { reportAsked: bigint | null })[]>`
    select (select report_asked from gateway.credits_journals where journal_id = own.id) as "reportAsked",
      ${rowColumns({ sql })}
    from (values (${gatewayId}::text)) own (id) left join gateway.credits_allotments a
      on a.gateway_id = own.id and a.ended_at is null and (a.is_recalled or a.is_closed)
    order by a.allotment_id`;
  return {
    rows: rows.flatMap(({ reportAsked: _, ...row }) => toRow(row) ?? []),
    reportAsked: Number(rows[0]?.reportAsked ?? 0),
  };
}

async function close({ sql }: WithSql, scope: AllotmentScope): Promise<number> {
  const [userId, tokenId, bureauId] = [
    'userId' in scope ? scope.userId : null,
    'tokenId' in scope ? scope.tokenId : null,
    'bureauId' in scope ? scope.bureauId : null,
  ];
  const [row] = await sql<{ open: number }[]>`
    select gateway.credits_close(${userId}, ${tokenId}, ${bureauId}) as open`;
  return row?.open ?? 0;
}

async function readAffordable(
  { sql }: WithSql,
  { gatewayId, userId, tokenId, ticket }: Parameters<AllotmentStore['affordable']>[0],
): Promise<{ available: bigint; idleElsewhere: bigint }> {
  const [row] = await sql<{ available: bigint; idleElsewhere: bigint }[]>`
    select available, reach - available as "idleElsewhere"
    from gateway.credits_reach(${gatewayId}, ${userId}, ${tokenId}, ${ticket ?? null})`;
  return row === undefined ? { available: 0n, idleElsewhere: 0n } : { ...row };
}

async function readAppliedSeqs(
  { sql }: WithSql,
  journalIds: readonly string[],
): Promise<Map<string, number>> {
  if (journalIds.length === 0) return new Map();
  const rows = await sql<{ journalId: string; appliedSeq: bigint }[]>`
    select journal_id as "journalId", applied_seq as "appliedSeq" from gateway.credits_journals
    where journal_id = any(${[...journalIds]}::text[])`;
  return new Map(rows.map(({ journalId, appliedSeq }) => [journalId, Number(appliedSeq)]));
}

async function openJournal({ sql }: WithSql, journalId: string, generation: string): Promise<void> {
  await sql`
    insert into gateway.credits_journals (journal_id, generation)
    values (${journalId}, ${generation}) on conflict do nothing`;
}

async function takeBackExpired(
  { sql }: WithSql,
  limit: number,
): Promise<{ allotmentId: string; amount: bigint }[]> {
  const rows = await sql<{ allotmentId: string; amount: bigint }[]>`
    select allotment_id as "allotmentId", amount
    from gateway.credits_take_back_expired(${limit}) order by 1`;
  return [...rows];
}

async function readGeneration({ sql }: WithSql): Promise<string> {
  const [row] = await sql<{ generation: string }[]>`select generation::text from gateway.credits_ledger`;
  if (row === undefined) throw new Error('The ledger has no generation.');
  return row.generation;
}

async function listAllotments({ sql }: WithSql, userId: string): Promise<AllotmentView[]> {
  const rows = await sql<AllotmentView[]>`
    select ${rowColumns({ sql })}, reserved, unapplied, gateway_id as "gatewayId", token_id as "tokenId",
      lease_until as "leaseUntil", created_at as "createdAt", reported_at as "reportedAt"
    from gateway.credits_allotments
    where account_id = ${userId} and ended_at is null order by allotment_id`;
  return [...rows];
}

async function dropOld({ sql }: WithSql, days: number, limit: number): Promise<number> {
  const result = await sql`
    delete from gateway.credits_allotments where allotment_id in (
      select allotment_id from gateway.credits_allotments
      where ended_at < gateway.townhall_now() - make_interval(days => ${days})
      order by ended_at limit ${limit} for update skip locked)`;
  return result.count;
}

async function applyCharges({ sql }: WithSql, batch: ChargeBatch): Promise<ApplyResult> {
  const { journalId, generation, expectedSeq, toSeq, charges } = batch;
  const [result] = await sql<
    {
      outcome: ApplyResult['outcome'];
      appliedSeq: bigint;
      charged: bigint[] | null;
      overruns: bigint[] | null;
      lates: boolean[] | null;
      allotments: (Omit<AllotmentRow, 'amount' | 'charged' | 'recall'> & {
        amount: string;
        charged: string;
        recall: string;
      })[];
    }[]
  >`
    select outcome, applied_seq as "appliedSeq", charged, overruns, lates, allotments
    from gateway.credits_apply_charges(${journalId}, ${generation}, ${expectedSeq}, ${toSeq},
      ${JSON.stringify(charges.map(serializeCharge))}::text::json,
      ${serializeReports(batch.reports ?? [])}::text::jsonb)`;
  if (result === undefined) throw new Error('The function credits_apply_charges returned no row.');
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
    rows: allotments.map((row) => ({
      ...row,
      amount: BigInt(row.amount),
      charged: BigInt(row.charged),
      recall: BigInt(row.recall),
    })),
  };
}

/** A `credits_line`. Credits as text: JSON numbers are exact up to 2^53 only. */
function serializeCharge({
  seq,
  usageId,
  call,
  allotmentId,
  credits,
  covered,
  facts,
}: CoveredCharge): object {
  const { tokens } = facts;
  return {
    seq,
    usage_id: usageId,
    allotment_id: allotmentId,
    credits: String(credits),
    covered: covered === undefined ? null : String(covered),
    request_id: call.requestId,
    user_id: call.userId,
    bureau_id: call.bureauId,
    token_id: call.tokenId,
    action: facts.action ?? call.action,
    model: facts.model ?? call.model,
    provider: facts.provider ?? call.provider,
    reason: facts.reason || undefined,
    input_tokens: toCount(tokens?.input),
    cached_input_tokens: toCount(tokens?.cachedInput),
    cache_write_tokens: toCount(tokens?.cacheWrite),
    output_tokens: toCount(tokens?.output),
    reasoning_tokens: toCount(tokens?.reasoning),
    units: facts.units ?? {},
    outcome: facts.outcome ?? 'upstream_failed',
    estimated: facts.estimated ?? true,
    ttft_ms: facts.ttftMs === null || facts.ttftMs === undefined ? null : toCount(facts.ttftMs),
    duration_ms: toCount(facts.durationMs),
    failure_code: facts.failureCode,
    attempts: facts.attempts === undefined ? undefined : Math.min(toCount(facts.attempts), 2_147_483_647),
  };
}

/**
 * A whole number from 0 to 2^53 − 1, as the columns require; 0 for a value that is not a number.
 */
function toCount(value: number | undefined): number {
  if (value === undefined || Number.isNaN(value) || value < 0) return 0;
  return Math.min(Math.round(value), Number.MAX_SAFE_INTEGER);
}

/** JSON of `{<allotment id>: [reserved, unapplied, charged, number]}`. */
function serializeReports(reports: readonly AllotmentReport[]): string {
  return JSON.stringify(
    Object.fromEntries(
      reports.map(({ allotmentId, reserved, unapplied, charged, number }) => [
        allotmentId,
        [String(reserved), String(unapplied), charged?.toString() ?? null, number?.toString() ?? null],
      ]),
    ),
  );
}

type Nullable<T> = { [K in keyof T]: T[K] | null };

function toRow({
  allotmentId,
  version,
  amount,
  charged,
  recall,
  isRecalled,
  isClosed,
}: Nullable<AllotmentRow>): AllotmentRow | null {
  if (allotmentId === null || version === null || amount === null) return null;
  return {
    allotmentId,
    version,
    amount,
    charged: charged ?? 0n,
    recall: recall ?? 0n,
    isRecalled: isRecalled === true,
    isClosed: isClosed === true,
  };
}

function rowColumns({ sql }: WithSql) {
  return sql`allotment_id as "allotmentId", version, amount, charged, recall,
    is_recalled as "isRecalled", is_closed as "isClosed"`;
}

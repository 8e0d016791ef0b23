// SQL of approvals. An approval is decided once.
import type { Database } from '../../../kernel/data/database.ts';
import { asJson, asText } from '../event-log/events.ts';
import type { UnitOfWork } from '../event-log/unit.ts';

export interface ApprovalRecord {
  approvalId: string;
  sessionKey: string;
  runId: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
  status: 'pending' | 'approved' | 'denied';
  reason: string | null;
  decidedBy: string | null;
  requestedAt: string;
  expiresAt: string | null;
  decidedAt: string | null;
}

interface ApprovalRow {
  approval_id: string;
  session_id: string;
  run_id: string;
  tool_call_id: string;
  tool_name: string;
  input: unknown;
  status: ApprovalRecord['status'];
  reason: string | null;
  decided_by: string | null;
  requested_at: Date;
  expires_at: Date | null;
  decided_at: Date | null;
}

function approvalOf(row: ApprovalRow): ApprovalRecord {
  return {
    approvalId: row.approval_id,
    sessionKey: row.session_id,
    runId: row.run_id,
    toolCallId: row.tool_call_id,
    toolName: row.tool_name,
    input: row.input,
    status: row.status,
    reason: row.reason,
    decidedBy: row.decided_by,
    requestedAt: row.requested_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
    decidedAt: row.decided_at?.toISOString() ?? null,
  };
}

export interface NewApproval {
  approvalId: string;
  sessionKey: string;
  runId: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
  /** Null for an approval that is inserted with its decision. */
  expiresAt: string | null;
  decision?: { status: 'approved' | 'denied'; by: string; reason: string | null };
}

export async function insertApproval({ tx }: UnitOfWork, approval: NewApproval): Promise<void> {
  const { decision } = approval;
  await tx`
    insert into agent.sessions_approvals (
      approval_id, session_id, run_id, tool_call_id, tool_name, input,
      status, reason, decided_by, expires_at, decided_at)
    values (${approval.approvalId}, ${approval.sessionKey}, ${approval.runId}, ${approval.toolCallId},
      ${asText(approval.toolName)}, ${asJson(approval.input ?? null)}::text::jsonb,
      ${decision?.status ?? 'pending'}, ${decision?.reason ?? null}, ${decision?.by ?? null},
      ${approval.expiresAt}::text::timestamptz,
      case when ${decision !== undefined}::boolean then agent.townhall_now() end)`;
}

export async function findApproval(
  { tx }: UnitOfWork,
  sessionKey: string,
  approvalId: string,
): Promise<ApprovalRecord | undefined> {
  const [row] = await tx<ApprovalRow[]>`
    select * from agent.sessions_approvals
    where session_id = ${sessionKey} and approval_id = ${approvalId}`;
  return row && approvalOf(row);
}

export async function pendingApprovals({ tx }: UnitOfWork, runId: string): Promise<ApprovalRecord[]> {
  const rows = await tx<ApprovalRow[]>`
    select * from agent.sessions_approvals where run_id = ${runId} and status = 'pending'
    order by requested_at, approval_id`;
  return rows.map(approvalOf);
}

export async function resolveApproval(
  { tx }: UnitOfWork,
  approvalId: string,
  { status, by, reason }: { status: 'approved' | 'denied'; by: string; reason: string | null },
): Promise<void> {
  await tx`
    update agent.sessions_approvals
    set status = ${status}, decided_by = ${by}, reason = ${reason === null ? null : asText(reason)},
      decided_at = agent.townhall_now()
    where approval_id = ${approvalId} and status = 'pending'`;
}

// Limit of a page by its stored size, which is known without reading the rows.
const pageBytes = 1024 * 1024;

export interface ApprovalStore {
  /** One page. It is shorter than `limit` when tool inputs are large, but never empty while rows remain. */
  list(
    sessionKey: string,
    query: { status?: string; after?: string; limit: number },
  ): Promise<{ approvals: ApprovalRecord[]; hasMore: boolean }>;
  find(approvalId: string): Promise<ApprovalRecord | undefined>;
}

export function approvalStore({ sql }: Pick<Database, 'sql'>): ApprovalStore {
  return {
    async list(sessionKey, { status, after, limit }) {
      // Ids sort by the time of their creation.
      const rows = await sql<(ApprovalRow & { row_count: number })[]>`
        select * from (
          select *,
            sum(pg_column_size(input)) over (order by approval_id) - pg_column_size(input) as bytes_before,
            (count(*) over ())::integer as row_count
          from (
            select * from agent.sessions_approvals
            where session_id = ${sessionKey}
              and (${status ?? null}::text is null or status = ${status ?? null})
              and (${after ?? null}::text is null or approval_id > ${after ?? null})
            order by approval_id limit ${limit + 1}
          ) candidates
        ) sized where bytes_before < ${pageBytes} order by approval_id limit ${limit}`;
      return { approvals: rows.map(approvalOf), hasMore: (rows[0]?.row_count ?? 0) > rows.length };
    },
    async find(approvalId) {
      const [row] = await sql<ApprovalRow[]>`
        select * from agent.sessions_approvals where approval_id = ${approvalId}`;
      return row && approvalOf(row);
    },
  };
}

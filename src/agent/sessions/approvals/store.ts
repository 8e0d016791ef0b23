// The questions that tools put to a person. A question is decided once, whoever comes first.
import type { Database } from '../../../kernel/data/database.ts';
import { asJson, asText } from '../event-log/events.ts';
import type { Unit } from '../event-log/committer.ts';

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
  /** Null for one that is decided with its asking. */
  expiresAt: string | null;
  decided?: { status: 'approved' | 'denied'; by: string; reason: string | null };
}

export async function insertApproval({ tx }: Unit, approval: NewApproval): Promise<void> {
  const { decided } = approval;
  await tx`
    insert into agent.sessions_approvals (approval_id, session_id, run_id, tool_call_id, tool_name, input, status, reason, decided_by, expires_at, decided_at)
    values (${approval.approvalId}, ${approval.sessionKey}, ${approval.runId}, ${approval.toolCallId}, ${asText(approval.toolName)}, ${asJson(approval.input ?? null)}::text::jsonb,
      ${decided?.status ?? 'pending'}, ${decided?.reason ?? null}, ${decided?.by ?? null}, ${approval.expiresAt}::text::timestamptz,
      case when ${decided !== undefined}::boolean then agent.townhall_now() end)`;
}

export async function approvalInUnit(
  { tx }: Unit,
  sessionKey: string,
  approvalId: string,
): Promise<ApprovalRecord | undefined> {
  const [row] = await tx<
    ApprovalRow[]
  >`select * from agent.sessions_approvals where session_id = ${sessionKey} and approval_id = ${approvalId}`;
  return row && approvalOf(row);
}

export async function pendingApprovals({ tx }: Unit, runId: string): Promise<ApprovalRecord[]> {
  const rows = await tx<
    ApprovalRow[]
  >`select * from agent.sessions_approvals where run_id = ${runId} and status = 'pending' order by requested_at, approval_id`;
  return rows.map(approvalOf);
}

export async function resolveApproval(
  { tx }: Unit,
  approvalId: string,
  decided: { status: 'approved' | 'denied'; by: string; reason: string | null },
): Promise<void> {
  await tx`
    update agent.sessions_approvals
    set status = ${decided.status}, decided_by = ${decided.by}, reason = ${decided.reason === null ? null : asText(decided.reason)}, decided_at = agent.townhall_now()
    where approval_id = ${approvalId} and status = 'pending'`;
}

// As they are stored, which is known without reading them.
const pageBytes = 1024 * 1024;

export interface ApprovalStore {
  /** A page, which ends early where the inputs of tools are large; one at least, where there is one. */
  list(
    sessionKey: string,
    query: { status?: string; after?: string; limit: number },
  ): Promise<{ approvals: ApprovalRecord[]; hasMore: boolean }>;
  find(approvalId: string): Promise<ApprovalRecord | undefined>;
}

export function approvalStore({ sql }: Pick<Database, 'sql'>): ApprovalStore {
  return {
    async list(sessionKey, { status, after, limit }) {
      // The ids are made in the order of time.
      const rows = await sql<(ApprovalRow & { found: number })[]>`
        select * from (
          select *, sum(pg_column_size(input)) over (order by approval_id) - pg_column_size(input) as bytes_before, (count(*) over ())::integer as found from (
            select * from agent.sessions_approvals
            where session_id = ${sessionKey} and (${status ?? null}::text is null or status = ${status ?? null}) and (${after ?? null}::text is null or approval_id > ${after ?? null})
            order by approval_id limit ${limit + 1}
          ) found
        ) counted where bytes_before < ${pageBytes} order by approval_id limit ${limit}`;
      return { approvals: rows.map(approvalOf), hasMore: (rows[0]?.found ?? 0) > rows.length };
    },
    async find(approvalId) {
      const [row] = await sql<
        ApprovalRow[]
      >`select * from agent.sessions_approvals where approval_id = ${approvalId}`;
      return row && approvalOf(row);
    },
  };
}

// Lists the audit log for administrators.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { AuditEntry as EntryBody } from '../../contract/gateway/types.gen.ts';
import type { Handlers } from '../../kernel/contract/operation.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { readTimeRange } from '../../kernel/contract/time-range.ts';
import type { Identity } from '../identity.ts';
import type { AuditRow, AuditStore } from './store.ts';

export function auditHandlers(store: Pick<AuditStore, 'list'>): Handlers<Operations, 'audit', Identity> {
  return {
    'audit.listEntries': async ({ query }) => {
      const filter = {
        action: query.action,
        actorId: query.actor_id,
        targetId: query.target_id,
        requestId: query.request_id,
        outcome: query.outcome,
        ...readTimeRange(query),
      };
      const before = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
      const limit = pageLimit(query);
      const rows = await store.list(filter, { before, limit });
      const { items, next_cursor } = pageOf(rows, limit, ({ entryId }) => entryId);
      return { status: 200, body: { items: items.map(serializeEntry), next_cursor } };
    },
  };
}

function serializeEntry(row: AuditRow): EntryBody {
  return {
    entry_id: row.entryId,
    actor_kind: row.actorKind,
    actor_id: row.actorId,
    token_id: row.tokenId,
    address: row.address,
    request_id: row.requestId,
    action: row.action,
    target_kind: row.targetKind,
    target_id: row.targetId,
    outcome: row.outcome,
    changes: row.diff,
    created_at: row.at.toISOString(),
  };
}

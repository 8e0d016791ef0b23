// The routes of approvals: list and decide.
import { decodeCursor, encodeCursor, isCursorText, pageLimit } from '../../kernel/contract/page.ts';
import { toApproval } from './records.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export function approvalHandlers({
  registry,
  permissions,
  approvals,
  approvalStore,
  workspaces,
  requireSession,
}: HandlerOptions): SessionHandlers<'sessions.listApprovals' | 'sessions.decideApproval'> {
  return {
    'sessions.listApprovals': async ({ path, query }) => {
      const session = await requireSession(path.sessionId);
      const afterId = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isCursorText);
      const page = await approvalStore.list(session.key, {
        limit: pageLimit(query),
        ...(query.status === undefined ? {} : { status: query.status }),
        ...(afterId === undefined ? {} : { after: afterId }),
      });
      const nextCursor = page.hasMore ? encodeCursor(page.approvals.at(-1)?.approvalId ?? null) : null;
      const items = page.approvals.map((approval) => toApproval(approval, session.id));
      return { status: 200, body: { items, nextCursor } };
    },

    'sessions.decideApproval': async ({ path, body, identity }) => {
      const session = await requireSession(path.sessionId);
      const approval = await approvals.decide(session.key, path.approvalId, {
        isApproved: body.decision === 'approve',
        by: identity.tokenId,
        reason: body.reason ?? null,
      });
      const tool = registry.tool(approval.toolName);
      if (body.scope !== undefined && body.scope !== 'once' && tool !== undefined) {
        // The rule may contain paths, which the tool resolves in an open workspace. Open it here: the run may
        // belong to another process, or may have ended.
        await workspaces.of(session).catch(() => {});
        await permissions.grantLike(
          { tool, input: approval.input, workspace: workspaces.rootOf(session) },
          {
            session: body.scope === 'session' ? session : null,
            effect: body.decision === 'approve' ? 'allow' : 'deny',
            pattern: body.pattern,
            expiresInMs: body.expiresInMs,
            createdBy: identity.tokenId,
          },
        );
      }
      return { status: 200, body: toApproval(approval, session.id) };
    },
  };
}

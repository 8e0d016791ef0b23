// The page of approvals: every pending tool call of all sessions.
import { approvalCard, createApprovalCards } from './conversation/approval-card.ts';
import { loadingNotice, showUnavailable } from './shared/connection-notice.ts';
import { createPermissionList } from './permission-list.ts';
import { emptyState, fill, fillWhenChanged, h, showControls } from './shared/elements.ts';
import type { Overview } from './shared/views.ts';
import type { OpenPage } from './shared/page.ts';

export const openApprovals: OpenPage = (root, _path, frame) => {
  const rows = h('div', { class: 'cards' });
  const state = h('div', {}, loadingNotice());
  const permissions = createPermissionList();
  fill(root, h('div', { class: 'page' }, h('h1', {}, 'Approvals'), state, rows, permissions.element));
  void permissions.refresh();
  // The last overview may be older than a decision made in a chat.
  void frame.refresh();
  const draw = createApprovalCards(rows, (approval: Overview['approvals'][number]) =>
    approvalCard(approval, {
      sessionId: approval.sessionId,
      more: [
        h(
          'p',
          { class: 'quiet' },
          'In ',
          h(
            'a',
            { href: `#/sessions/${approval.sessionId}` },
            showControls(approval.sessionTitle ?? approval.sessionId),
          ),
          ', requested at ',
          new Date(approval.requestedAt).toLocaleTimeString(),
        ),
      ],
      onDecided() {
        void frame.refresh();
        void permissions.refresh();
      },
    }),
  );
  return {
    update({ agent, approvals }) {
      if (agent.state !== 'connected') {
        if (rows.childElementCount === 0) showUnavailable(state, agent);
        return;
      }
      fillWhenChanged(state, approvals.length === 0, () => (approvals.length > 0 ? null : emptyList()));
      draw(approvals);
    },
  };
};

function emptyList(): HTMLElement {
  const view = emptyState(
    'No approvals are waiting',
    h('p', {}, 'Tool calls that need your approval appear here, from all sessions that you attend.'),
  );
  view.classList.add('placeholder');
  return view;
}

// The page of approvals: every tool call that waits for a decision, over all sessions.
import { approvalCard, createApprovalCards } from './approval-card.ts';
import { loading, showAway } from './connection-notice.ts';
import { empty, fill, fillWhenChanged, h, showControls } from './elements.ts';
import type { Overview } from './views.ts';
import type { OpenPage } from './page.ts';

export const openApprovals: OpenPage = (root, _path, frame) => {
  const rows = h('div', { class: 'cards' });
  const state = h('div', {}, loading());
  fill(root, h('div', { class: 'page' }, h('h1', {}, 'Approvals'), state, rows));
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
          ', asked ',
          new Date(approval.requestedAt).toLocaleTimeString(),
        ),
      ],
      onDecided: () => void frame.refresh(),
    }),
  );
  return {
    update({ agent, approvals }) {
      if (agent.state !== 'here') {
        if (rows.childElementCount === 0) showAway(state, agent);
        return;
      }
      fillWhenChanged(state, approvals.length === 0, () => (approvals.length > 0 ? null : nothing()));
      draw(approvals);
    },
  };
};

function nothing(): HTMLElement {
  const view = empty(
    'Nobody asks anything',
    h(
      'p',
      {},
      'Tools that need a person’s word show up here, from all sessions in which you said that you attend.',
    ),
  );
  view.classList.add('placeholder');
  return view;
}

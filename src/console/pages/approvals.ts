// The room for questions: every tool of every session that waits for a person.
import { approvalCard } from './approval-card.ts';
import { loading, showAway } from './away.ts';
import { empty, fill, fillWhenChanged, h } from './elements.ts';
import type { OpenPage } from './page.ts';

export const openApprovals: OpenPage = (root, _path, rooms) => {
  const rows = h('div', { class: 'cards' }, loading());
  fill(root, h('div', { class: 'page' }, h('h1', {}, 'Approvals'), rows));
  return {
    update({ agent, approvals }) {
      if (agent.state !== 'here') return showAway(rows, agent);
      fillWhenChanged(rows, approvals.map(({ approvalId }) => approvalId), () =>
        approvals.length === 0
          ? empty('Nobody asks anything', h('p', {}, 'Tools that need a person’s word show up here, from all sessions in which you said that you attend.'))
          : approvals.map((approval) =>
              approvalCard(approval, {
                sessionId: approval.sessionId,
                more: [h('p', { class: 'quiet' }, 'In ', h('a', { href: `#/sessions/${approval.sessionId}` }, approval.sessionTitle ?? approval.sessionId), ', asked ', new Date(approval.requestedAt).toLocaleTimeString())],
                answered: () => void rooms.refresh(),
              }),
            ),
      );
    },
  };
};

// A tool call that needs a decision: its exact input, and the buttons to approve or deny it.
import { callConsole, runOrShowError } from '../shared/console-client.ts';
import { button, focusHome, h, json, showControls } from '../shared/elements.ts';
import type { PendingApproval } from './thread-state.ts';

type Decide = (decision: 'approve' | 'deny', scope?: 'once' | 'session' | 'project') => Promise<void>;

/**
 * `more` is shown below the name, such as the session. `onDecided` is called once the agent has
 * accepted the decision.
 */
export function approvalCard(
  approval: PendingApproval,
  {
    sessionId,
    more = [],
    onDecided = () => {},
  }: { sessionId: string; more?: readonly Node[]; onDecided?: () => void },
): HTMLElement {
  const reason = h('input', {
    type: 'text',
    id: `reason-${approval.approvalId}`,
    maxlength: 1000,
    autocomplete: 'off',
    placeholder: 'reason for the model, sent with a denial',
  });
  const decide: Decide = async (decision, scope = 'once') => {
    const text = reason.value.trim();
    const isDecided = await runOrShowError(() =>
      callConsole('sessions.decideApproval', {
        sessionId,
        approvalId: approval.approvalId,
        decision,
        ...(scope === 'once' ? {} : { scope }),
        ...(decision === 'deny' && text !== '' ? { reason: text } : {}),
      }),
    );
    if (isDecided) onDecided();
  };
  return h(
    'section',
    {
      class: 'card approval',
      'aria-label': `Approval of ${approval.toolName}`,
      'data-approval': approval.approvalId,
      tabindex: '-1',
    },
    h('h3', {}, 'May the agent call ', h('code', {}, showControls(approval.toolName)), '?'),
    more,
    json(approval.input),
    approval.expiresAt !== null &&
      h(
        'p',
        { class: 'quiet' },
        `Without an answer it is denied at ${new Date(approval.expiresAt).toLocaleTimeString()}.`,
      ),
    decisionRow(reason, decide),
  );
}

function decisionRow(reason: HTMLInputElement, decide: Decide): HTMLElement {
  return h(
    'div',
    { class: 'row' },
    button('Approve', () => decide('approve'), { class: 'primary' }),
    button('Deny', () => decide('deny'), { class: 'danger' }),
    button('Always in this session', () => decide('approve', 'session')),
    button('Always in this project', () => decide('approve', 'project')),
    h('label', { class: 'grow', for: reason.id }, h('span', { class: 'hidden' }, 'Reason'), reason),
  );
}

/**
 * Draws a card for each approval and keeps unchanged cards together with a reason that is being
 * typed. When a focused card is removed, focus moves to the next card or home, and never to a
 * button, which the next Enter would press.
 */
export function createApprovalCards<Item extends PendingApproval>(
  parent: HTMLElement,
  createCard: (approval: Item) => HTMLElement,
): (approvals: readonly Item[]) => void {
  const cards = new Map<string, HTMLElement>();
  return (approvals) => {
    const oldIds = [...cards.keys()];
    const focusIndex = [...cards.values()].findIndex((card) => card.contains(document.activeElement));
    const openIds = new Set(approvals.map(({ approvalId }) => approvalId));
    for (const [approvalId, card] of cards) {
      if (openIds.has(approvalId)) continue;
      card.remove();
      cards.delete(approvalId);
    }
    for (const approval of approvals) {
      if (cards.has(approval.approvalId)) continue;
      const card = createCard(approval);
      cards.set(approval.approvalId, card);
      parent.append(card);
    }
    if (focusIndex < 0 || parent.contains(document.activeElement)) return;
    // New cards are appended, so the next card has as many cards before it as remain of those that were
    // before the focused one.
    const nextIndex = oldIds.slice(0, focusIndex).filter((approvalId) => openIds.has(approvalId)).length;
    const next = [...cards.values()][Math.min(nextIndex, cards.size - 1)];
    if (next === undefined) focusHome();
    else next.focus();
  };
}

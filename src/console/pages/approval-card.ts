// A tool that waits for a person: what it would do, exactly, and the two answers.
import { ask, trying } from './agent-client.ts';
import { button, focusHome, h, json, showControls } from './elements.ts';
import type { Question } from './thread.ts';

/** `more` stands under the name, such as where the question comes from. `answered` is called after the agent took the answer. */
export function approvalCard(
  question: Question,
  {
    sessionId,
    more = [],
    answered = () => {},
  }: { sessionId: string; more?: readonly Node[]; answered?: () => void },
): HTMLElement {
  const reason = h('input', {
    type: 'text',
    id: `reason-${question.approvalId}`,
    maxlength: 1000,
    autocomplete: 'off',
    placeholder: 'told to the model with a denial',
  });
  const decide = async (decision: 'approve' | 'deny'): Promise<void> => {
    const word = reason.value.trim();
    const isTaken = await trying(() =>
      ask('sessions.decideApproval', {
        sessionId,
        approvalId: question.approvalId,
        decision,
        ...(decision === 'deny' && word !== '' ? { reason: word } : {}),
      }),
    );
    if (isTaken) answered();
  };
  return h(
    'section',
    {
      class: 'card approval',
      'aria-label': `Approval of ${question.toolName}`,
      'data-approval': question.approvalId,
      tabindex: '-1',
    },
    h('h3', {}, 'May the agent call ', h('code', {}, showControls(question.toolName)), '?'),
    more,
    json(question.input),
    question.expiresAt !== null &&
      h(
        'p',
        { class: 'quiet' },
        `Without an answer it is denied at ${new Date(question.expiresAt).toLocaleTimeString()}.`,
      ),
    h(
      'div',
      { class: 'row' },
      button('Approve', () => decide('approve'), { class: 'primary' }),
      button('Deny', () => decide('deny'), { class: 'danger' }),
      h('label', { class: 'grow', for: reason.id }, h('span', { class: 'hidden' }, 'Reason'), reason),
    ),
  );
}

/**
 * Draws a card for each question into the place and keeps the cards that stay, with the reason that is being written.
 * Focus in a card that is answered goes to the card behind it, or home; never to a button, which the next Enter would press.
 */
export function createApprovalCards<Item extends Question>(
  place: HTMLElement,
  makeCard: (question: Item) => HTMLElement,
): (questions: readonly Item[]) => void {
  const cards = new Map<string, HTMLElement>();
  return (questions) => {
    const focusIndex = [...cards.values()].findIndex((card) => card.contains(document.activeElement));
    const open = new Set(questions.map(({ approvalId }) => approvalId));
    for (const [approvalId, card] of cards) {
      if (open.has(approvalId)) continue;
      card.remove();
      cards.delete(approvalId);
    }
    for (const question of questions) {
      if (cards.has(question.approvalId)) continue;
      const card = makeCard(question);
      cards.set(question.approvalId, card);
      place.append(card);
    }
    if (focusIndex < 0 || place.contains(document.activeElement)) return;
    const next = [...cards.values()][Math.min(focusIndex, cards.size - 1)];
    if (next === undefined) focusHome();
    else next.focus();
  };
}

// A tool that waits for a person: what it would do, exactly, and the two answers.
import { ask, trying } from './ask.ts';
import { button, h, json } from './elements.ts';
import type { Question } from './thread.ts';

/** `more` stands under the name, such as where the question comes from. `answered` is called after the agent took the answer. */
export function approvalCard(question: Question, { sessionId, more = [], answered = () => {} }: { sessionId: string; more?: readonly Node[]; answered?: () => void }): HTMLElement {
  const reason = h('input', { type: 'text', id: `reason-${question.approvalId}`, maxlength: 1000, autocomplete: 'off', placeholder: 'told to the model with a denial' });
  const decide = async (decision: 'approve' | 'deny'): Promise<void> => {
    const word = reason.value.trim();
    const isTaken = await trying(() => ask('sessions.decideApproval', { sessionId, approvalId: question.approvalId, decision, ...(decision === 'deny' && word !== '' ? { reason: word } : {}) }));
    if (isTaken) answered();
  };
  return h(
    'section',
    { class: 'card approval', 'aria-label': `Approval of ${question.toolName}`, 'data-approval': question.approvalId },
    h('h3', {}, 'May the agent call ', h('code', {}, question.toolName), '?'),
    more,
    json(question.input),
    question.expiresAt !== null && h('p', { class: 'quiet' }, `Without an answer it is denied at ${new Date(question.expiresAt).toLocaleTimeString()}.`),
    h(
      'div',
      { class: 'row' },
      button('Approve', () => decide('approve'), { class: 'primary' }),
      button('Deny', () => decide('deny'), { class: 'danger' }),
      h('label', { class: 'grow', for: reason.id }, h('span', { class: 'hidden' }, 'Reason'), reason),
    ),
  );
}

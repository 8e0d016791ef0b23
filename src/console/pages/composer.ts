// The place to write. Enter sends, Shift+Enter begins a line; what was not taken by the agent stays where it was written.
import type { Session } from '@townhall/agent';
import { ask, trying } from './ask.ts';
import { h } from './elements.ts';
import { sendPrompt, type Attachment } from './send.ts';

export interface ComposerOptions {
  /** Absent for a chat that its first message makes. */
  sessionId?: string;
  /** Set for a chat, whose messages go through its queue. */
  chatId: string | null;
  attended: boolean;
  placeholder?: string;
  /** Told of the session that the message went to. */
  sent(sessionId: string): void;
}

export function createComposer({ sessionId, chatId, attended, placeholder = 'Write to the agent', sent }: ComposerOptions): HTMLFormElement {
  const area = h('textarea', { id: 'composer', rows: 2, placeholder, 'aria-label': 'Message', autocomplete: 'off' });
  const send = h('button', { type: 'submit', class: 'primary' }, 'Send');
  const asks = h('input', { type: 'checkbox', id: 'asks', checked: attended });
  const files = h('input', { type: 'file', id: 'files', multiple: true, class: 'hidden' });
  const chosen = h('span', { class: 'quiet' });
  const delivery = h('select', { id: 'delivery', 'aria-label': 'When the agent is busy' }, [
    h('option', { value: 'queue' }, 'wait in line'),
    h('option', { value: 'steer' }, 'tell it at its next step'),
    h('option', { value: 'interrupt' }, 'stop it and take this'),
  ]);

  // One after the other, in the order in which they were written; the next may be written meanwhile.
  let sending = Promise.resolve();

  function submit(): void {
    const text = area.value.trim();
    if (text === '') return;
    const chosenFiles = [...(files.files ?? [])];
    area.value = '';
    files.value = '';
    chosen.textContent = '';
    area.focus();
    sending = sending.then(async () => {
      send.setAttribute('aria-busy', 'true');
      const isTaken = await trying(() => deliver(text, chosenFiles));
      send.removeAttribute('aria-busy');
      if (!isTaken) area.value = area.value === '' ? text : `${text}\n${area.value}`;
    });
  }

  async function deliver(text: string, chosenFiles: readonly File[]): Promise<void> {
    const attachments = await Promise.all(chosenFiles.map(readAttachment));
    const prompt = { text, ...(attachments.length === 0 ? {} : { attachments }) };
    const isNewChat = sessionId === undefined;
    sent(await sendPrompt({ sessionId, chatId }, prompt, chatId === null ? { delivery: delivery.value } : isNewChat ? { attended: asks.checked } : {}));
  }

  area.addEventListener('keydown', (event) => {
    // While an input method is composing, Enter belongs to it.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  asks.addEventListener('change', () => {
    if (sessionId !== undefined) void trying(() => ask<Session>('sessions.update', { sessionId, attended: asks.checked }));
  });
  files.addEventListener('change', () => {
    chosen.textContent = [...(files.files ?? [])].map(({ name }) => name).join(', ');
  });

  const form = h(
    'form',
    { class: 'composer' },
    area,
    h(
      'div',
      { class: 'row' },
      h('label', { class: 'check', for: 'asks', title: 'Otherwise the policy of the agent decides at once' }, asks, ' Ask me before a tool that needs approval'),
      chatId === null && h('label', { for: 'delivery' }, 'When busy: ', delivery),
      h('label', { class: 'attach', for: 'files' }, 'Attach files', files),
      chosen,
      h('span', { class: 'grow' }),
      send,
    ),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  return form;
}

async function readAttachment(file: File): Promise<Attachment> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  // In pieces, because a call takes only so many arguments.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return { type: 'document', fileName: file.name, contentType: file.type === '' ? 'application/octet-stream' : file.type, content: btoa(text), encoding: 'base64' };
}

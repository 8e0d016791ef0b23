// The place to write. Enter sends, Shift+Enter begins a line. Text leaves the composer for good only once the agent has
// accepted it; until then it is shown as being sent, and comes back with the reason when it is refused.
import type { Session } from '@townhall/agent';
import { ask, errorView, Refusal, trying } from './agent-client.ts';
import { readDraft, writeDraft } from './drafts.ts';
import { fill, h } from './elements.ts';
import { sendPrompt, type Attachment } from './send.ts';

export interface ComposerOptions {
  /** Absent for a chat that its first message makes. */
  sessionId?: string;
  /** Set for a chat, whose messages go through its queue. */
  chatId: string | null;
  attended: boolean;
  placeholder?: string;
  /** Called with the session that accepted the message. */
  sent(sessionId: string): void;
}

interface Outgoing {
  text: string;
  files: File[];
  delivery: string;
  /** The same for a text that is sent once more, so that a session takes it once. */
  id: string;
}

export function createComposer({
  sessionId,
  chatId,
  attended,
  placeholder = 'Write to the agent',
  sent,
}: ComposerOptions): HTMLFormElement {
  const area = h('textarea', {
    id: 'composer',
    rows: 2,
    placeholder,
    'aria-label': 'Message',
    autocomplete: 'off',
  });
  const send = h('button', { type: 'submit', class: 'primary' }, 'Send');
  const asks = h('input', { type: 'checkbox', id: 'asks', checked: attended });
  const files = h('input', { type: 'file', id: 'files', multiple: true, class: 'hidden' });
  const chosen = h('span', { class: 'quiet' });
  const delivery = h('select', { id: 'delivery', 'aria-label': 'When the agent is busy' }, [
    h('option', { value: 'queue' }, 'wait in line'),
    h('option', { value: 'steer' }, 'tell it at its next step'),
    h('option', { value: 'interrupt' }, 'stop it and take this'),
  ]);

  const problem = h('div', { class: 'problem', role: 'alert', hidden: true });
  const pending = h('ol', { class: 'pending', 'aria-label': 'Being sent', hidden: true });
  const draftName = sessionId ?? 'new';
  area.value = readDraft(draftName);

  // Sent one after the other, in the order in which they were written; the next may be written meanwhile.
  const outbox: Outgoing[] = [];
  let refused: Outgoing | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function saveDraft(): void {
    writeDraft(
      draftName,
      [...outbox.map(({ text }) => text), area.value].filter((text) => text !== '').join('\n'),
    );
  }

  function drawOutbox(): void {
    clearTimeout(timer);
    if (outbox.length === 0) pending.hidden = true;
    // A message that is accepted at once should not move the page.
    else timer = setTimeout(() => void (pending.hidden = false), 300);
    fill(
      pending,
      outbox.map(({ text }) => h('li', {}, h('span', { class: 'quiet' }, 'Sending … '), text)),
    );
    if (outbox.length > 0) send.setAttribute('aria-busy', 'true');
    else send.removeAttribute('aria-busy');
    saveDraft();
  }

  function submit(): void {
    const text = area.value.trim();
    if (text === '') return;
    const chosenFiles = [...(files.files ?? [])];
    const next: Outgoing = { text, files: chosenFiles, delivery: delivery.value, id: crypto.randomUUID() };
    const isSame =
      refused?.text === text &&
      refused.delivery === next.delivery &&
      refused.files.length === 0 &&
      chosenFiles.length === 0;
    outbox.push(isSame && refused !== undefined ? refused : next);
    area.value = '';
    setFiles([]);
    problem.hidden = true;
    area.focus();
    drawOutbox();
    if (outbox.length === 1) void sendAll();
  }

  async function sendAll(): Promise<void> {
    for (let next = outbox[0]; next !== undefined; next = outbox[0]) {
      try {
        const acceptedBy = await deliver(next);
        refused = undefined;
        outbox.shift();
        drawOutbox();
        sent(acceptedBy);
      } catch (error) {
        takeBack(error);
      }
    }
  }

  // What was written after the refused message comes back with it: sent alone it would arrive without its context.
  function takeBack(error: unknown): void {
    const unsent = outbox.splice(0);
    refused = unsent.length === 1 ? unsent[0] : undefined;
    area.value = [...unsent.map(({ text }) => text), area.value].filter((text) => text !== '').join('\n');
    setFiles([...unsent.flatMap((message) => message.files), ...(files.files ?? [])]);
    drawOutbox();
    const mayHaveArrived =
      chatId !== null &&
      error instanceof Refusal &&
      (error.code === 'agent_silent' || error.code === 'console_away');
    fill(
      problem,
      errorView(error),
      h(
        'p',
        {},
        mayHaveArrived
          ? 'Your message is kept here. If it shows up above it has arrived; otherwise send it again.'
          : 'Your message is kept here and was not sent.',
      ),
    );
    problem.hidden = false;
  }

  function setFiles(chosenFiles: readonly File[]): void {
    const transfer = new DataTransfer();
    for (const file of chosenFiles) transfer.items.add(file);
    files.files = transfer.files;
    chosen.textContent = chosenFiles.map(({ name }) => name).join(', ');
  }

  async function deliver({ text, files: chosenFiles, delivery: how, id }: Outgoing): Promise<string> {
    const attachments = await Promise.all(chosenFiles.map(readAttachment));
    const prompt = { text, ...(attachments.length === 0 ? {} : { attachments }) };
    const isNewChat = sessionId === undefined;
    return sendPrompt(
      { sessionId, chatId },
      prompt,
      chatId === null ? { delivery: how, id } : isNewChat ? { attended: asks.checked } : {},
    );
  }

  area.addEventListener('input', saveDraft);
  area.addEventListener('keydown', (event) => {
    // While an input method is composing, Enter belongs to it.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  asks.addEventListener('change', () => {
    if (sessionId !== undefined)
      void trying(() => ask<Session>('sessions.update', { sessionId, attended: asks.checked }));
  });
  files.addEventListener('change', () => {
    chosen.textContent = [...(files.files ?? [])].map(({ name }) => name).join(', ');
  });

  const form = h(
    'form',
    { class: 'composer' },
    problem,
    pending,
    area,
    h(
      'div',
      { class: 'row' },
      h(
        'label',
        { class: 'check', for: 'asks', title: 'Otherwise the policy of the agent decides at once' },
        asks,
        ' Ask me before a tool that needs approval',
      ),
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
  for (let at = 0; at < bytes.length; at += 8_192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return {
    type: 'document',
    fileName: file.name,
    contentType: file.type === '' ? 'application/octet-stream' : file.type,
    content: btoa(text),
    encoding: 'base64',
  };
}

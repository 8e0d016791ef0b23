// The composer of a conversation. Enter sends, Shift+Enter starts a new line. The text is discarded
// only once the agent has accepted it; a refused text comes back with the reason.
import type { Session } from '@townhall/agent';
import { callConsole, errorView, Refusal, runOrShowError } from '../shared/console-client.ts';
import { readDraft, writeDraft } from './drafts.ts';
import { fill, h } from '../shared/elements.ts';
import { createOutbox, type Outgoing } from './outbox.ts';
import { readAttachment, sendPrompt } from './send.ts';

export interface ComposerOptions {
  /** Absent for a chat that its first message creates. */
  sessionId?: string;
  /** Set for a chat, whose messages go through its queue. */
  chatId: string | null;
  isAttended: boolean;
  placeholder?: string;
  /** Called with the session that accepted the message. */
  onSent(sessionId: string): void;
}

export function createComposer(options: ComposerOptions): HTMLFormElement {
  const { sessionId, chatId, isAttended, placeholder = 'Write to the agent', onSent } = options;
  const fields = createFields({ placeholder, isAttended });
  const { area, attendedBox, attachments, delivery, problem } = fields;
  const draft = openDraft(area, sessionId ?? 'new', () => outbox.messages());
  // Kept to detect that the same text is sent again.
  let refusedMessage: Outgoing | undefined;

  const outbox = createOutbox({
    deliver: (message) => deliver(message, options, attendedBox.checked),
    onChange() {
      fields.showSending(outbox.messages());
      draft.save();
    },
    onAccepted(acceptedBy) {
      refusedMessage = undefined;
      if (sessionId === undefined && area.isConnected) draft.moveTo(acceptedBy);
      onSent(acceptedBy);
    },
    onRefused: restore,
  });

  function submit(): void {
    const text = area.value.trim();
    if (text === '') return;
    const message = { text, files: attachments.read(), delivery: delivery.value };
    area.value = '';
    attachments.set([]);
    problem.hidden = true;
    area.focus();
    outbox.send({
      ...message,
      id: isSameMessage(refusedMessage, message) ? refusedMessage.id : crypto.randomUUID(),
    });
  }

  function restore(error: unknown, unsentMessages: readonly Outgoing[]): void {
    refusedMessage = unsentMessages.length === 1 ? unsentMessages[0] : undefined;
    area.value = joinTexts([...unsentMessages.map(({ text }) => text), area.value]);
    attachments.set([...unsentMessages.flatMap(({ files }) => files), ...attachments.read()]);
    draft.save();
    // A session other than a chat accepts a repeated message once, by its id. `isSameMessage` keeps the id
    // only of a single message without files, so any other message could arrive twice.
    const isAcceptedOnce = chatId === null && refusedMessage?.files.length === 0;
    showProblem(problem, error, { mayHaveArrived: !isAcceptedOnce && isUnanswered(error) });
  }

  area.addEventListener('input', draft.save);
  submitOnEnter(area, submit);
  if (sessionId !== undefined) updateAttended(attendedBox, sessionId);
  const form = layOut(fields, { hasDelivery: chatId === null });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  return form;
}

/** Fills the area with the stored draft. A draft has the text of the area and of unsent messages. */
function openDraft(area: HTMLTextAreaElement, name: string, unsentMessages: () => readonly Outgoing[]) {
  const save = (): void =>
    writeDraft(name, joinTexts([...unsentMessages().map(({ text }) => text), area.value]));
  area.value = readDraft(name);
  return {
    save,
    // Text typed while the first message creates its session belongs to the composer of that session's page.
    moveTo(newSessionId: string): void {
      writeDraft(newSessionId, area.value);
      area.value = '';
      save();
    },
  };
}

function showProblem(
  problem: HTMLElement,
  error: unknown,
  { mayHaveArrived }: { mayHaveArrived: boolean },
): void {
  const advice = mayHaveArrived
    ? 'Your message is kept here. If it appears above, it has arrived; otherwise send it again.'
    : 'Your message was not sent and is kept here.';
  fill(problem, errorView(error), h('p', {}, advice));
  problem.hidden = false;
}

function submitOnEnter(area: HTMLTextAreaElement, submit: () => void): void {
  area.addEventListener('keydown', (event) => {
    // During composition, Enter belongs to the input method.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
}

/** Changes the session when the box changes. */
function updateAttended(box: HTMLInputElement, sessionId: string): void {
  box.addEventListener('change', () => {
    void runOrShowError(() => callConsole<Session>('sessions.update', { sessionId, attended: box.checked }));
  });
}

/** Resolves to the id of the session that accepted the message. */
async function deliver(
  { text, files, delivery, id }: Outgoing,
  { sessionId, chatId }: Pick<ComposerOptions, 'sessionId' | 'chatId'>,
  isAttended: boolean,
): Promise<string> {
  const attachments = await Promise.all(files.map(readAttachment));
  const prompt = { text, ...(attachments.length === 0 ? {} : { attachments }) };
  const chatOptions = sessionId === undefined ? { attended: isAttended } : {};
  return sendPrompt({ sessionId, chatId }, prompt, chatId === null ? { delivery, id } : chatOptions);
}

type Fields = ReturnType<typeof createFields>;

function createFields({ placeholder, isAttended }: { placeholder: string; isAttended: boolean }) {
  const area = h('textarea', {
    id: 'composer',
    rows: 2,
    placeholder,
    'aria-label': 'Message',
    autocomplete: 'off',
  });
  const send = h('button', { type: 'submit', class: 'primary' }, 'Send');
  const attendedBox = h('input', { type: 'checkbox', id: 'asks', checked: isAttended });
  const attachments = createAttachmentField();
  const delivery = h('select', { id: 'delivery', 'aria-label': 'When the agent is busy' }, [
    h('option', { value: 'queue' }, 'queue it'),
    h('option', { value: 'steer' }, 'send it with the next step'),
    h('option', { value: 'interrupt' }, 'stop it and run this'),
  ]);
  const problem = h('div', { class: 'problem', role: 'alert', hidden: true });
  const sendingList = h('ol', { class: 'pending', 'aria-label': 'Being sent', hidden: true });
  let timer: ReturnType<typeof setTimeout> | undefined;

  function showSending(messages: readonly Outgoing[]): void {
    clearTimeout(timer);
    if (messages.length === 0) sendingList.hidden = true;
    // Shown with a delay, so that a message that is accepted at once does not move the page.
    else timer = setTimeout(() => void (sendingList.hidden = false), 300);
    fill(
      sendingList,
      messages.map(({ text }) => h('li', {}, h('span', { class: 'quiet' }, 'Sending … '), text)),
    );
    if (messages.length > 0) send.setAttribute('aria-busy', 'true');
    else send.removeAttribute('aria-busy');
  }

  return { area, send, attendedBox, attachments, delivery, problem, sendingList, showSending };
}

/** A file field with the names of the chosen files beside it. */
function createAttachmentField() {
  const input = h('input', { type: 'file', id: 'files', multiple: true, class: 'hidden' });
  const names = h('span', { class: 'quiet' });
  const read = (): File[] => [...(input.files ?? [])];
  const showNames = (): void =>
    void (names.textContent = read()
      .map(({ name }) => name)
      .join(', '));
  input.addEventListener('change', showNames);
  return {
    input,
    names,
    read,
    set(files: readonly File[]): void {
      const transfer = new DataTransfer();
      for (const file of files) transfer.items.add(file);
      input.files = transfer.files;
      showNames();
    },
  };
}

function layOut(
  { area, send, attendedBox, attachments, delivery, problem, sendingList }: Fields,
  { hasDelivery }: { hasDelivery: boolean },
): HTMLFormElement {
  return h(
    'form',
    { class: 'composer' },
    problem,
    sendingList,
    h('div', { class: 'entry' }, area, send),
    h(
      'div',
      { class: 'row' },
      h(
        'label',
        { class: 'check', for: 'asks', title: 'Otherwise the agent’s policy decides at once' },
        attendedBox,
        ' Ask me before a tool that needs approval',
      ),
      hasDelivery && h('label', { class: 'delivery', for: 'delivery' }, 'When busy: ', delivery),
      h('label', { class: 'attach', for: 'files' }, 'Attach files', attachments.input),
      attachments.names,
    ),
  );
}

function joinTexts(texts: readonly string[]): string {
  return texts.filter((text) => text !== '').join('\n');
}

// A repeated text keeps its id, so that the session accepts it once.
function isSameMessage(
  refusedMessage: Outgoing | undefined,
  { text, files, delivery }: Omit<Outgoing, 'id'>,
): refusedMessage is Outgoing {
  return (
    refusedMessage?.text === text &&
    refusedMessage.delivery === delivery &&
    refusedMessage.files.length === 0 &&
    files.length === 0
  );
}

function isUnanswered(error: unknown): boolean {
  return error instanceof Refusal && (error.code === 'agent_silent' || error.code === 'console_unreachable');
}

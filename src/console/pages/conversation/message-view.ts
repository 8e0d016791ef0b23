// One message on the page. Only changed parts are redrawn, so that a growing text does not affect a
// selection or opened details above it.
import type { RunUsage, UiMessagePart } from '@townhall/agent';
import {
  elapsedTime,
  button,
  fill,
  fillWhenChanged,
  h,
  json,
  pill,
  showControls,
  type Child,
} from '../shared/elements.ts';
import { createMarkdown, type Markdown } from '../shared/markdown.ts';
import type { ChangesView } from './run-changes.ts';
import type { Message, Outcome } from './thread-state.ts';
import type { FileChanges } from './thread.ts';

export interface MessageState {
  /** Ids of the tool calls with pending approvals. */
  pendingCalls: ReadonlySet<string>;
  /** The number of prompts before this one; null for a message that is not queued. */
  queuePosition: number | null;
  outcome: Outcome | undefined;
  /** The files that the run of the answer has changed. */
  fileChanges: FileChanges | undefined;
}

export interface MessageView {
  element: HTMLElement;
  draw(message: Message, state: MessageState): void;
}

export interface MessageActions {
  fork(messageId: string): Promise<void>;
  /** Sends the prompt of the message's run again. */
  retry(message: Message): Promise<void>;
  /** Shows what a run has changed in files. */
  showChanges(changes: FileChanges): ChangesView;
}

export function createMessageView(
  role: Message['role'],
  { fork, retry, showChanges }: MessageActions,
): MessageView {
  const head = h('header', {});
  const body = h('div', { class: 'body' });
  const end = h('div', {});
  const files = h('div', {});
  const foot = h('footer', {});
  const element = h('article', { class: `message ${role}` }, head, body, end, files, foot);
  const drawnParts: DrawnPart[] = [];
  let footKey = '';
  let changesView: ChangesView | undefined;

  return {
    element,
    draw(message, { pendingCalls, queuePosition, outcome, fileChanges }) {
      element.dataset['message'] = message.id;
      const { metadata, isOpen, parts } = message;
      element.setAttribute('aria-busy', String(isOpen));
      element.classList.toggle('waits', queuePosition !== null);
      fill(head, headOf(role, message, queuePosition));
      const visibleParts = parts.filter((part) => part.type !== 'step-start');
      for (const [index, part] of visibleParts.entries())
        drawnParts[index] = drawInto(body, index, part, { pendingCalls, previous: drawnParts[index] });
      while (body.children.length > visibleParts.length) body.lastElementChild?.remove();
      drawnParts.length = visibleParts.length;
      element.classList.toggle('begun', isOpen && visibleParts.length === 0);
      fillWhenChanged(end, outcome ?? null, () => outcome && outcomeView(outcome, () => retry(message)));
      if (fileChanges !== undefined) {
        changesView ??= showChanges(fileChanges);
        if (changesView.element.parentElement !== files) files.replaceChildren(changesView.element);
        changesView.update(fileChanges);
      }
      const key = JSON.stringify([isOpen, metadata]);
      if (key !== footKey) fill(foot, isOpen ? null : footOf(message, fork));
      footKey = key;
    },
  };
}

function headOf(role: Message['role'], { metadata }: Message, queuePosition: number | null): Child {
  const createdAt = metadata['createdAt'];
  return [
    h('strong', {}, role === 'user' ? 'You' : 'Agent'),
    ' ',
    typeof createdAt === 'string' && elapsedTime(createdAt),
    queuePosition !== null && [' ', pill(`queued, ${queuePosition} ahead`, 'wait')],
    metadata['status'] === 'replaced' && [' ', pill('replaced', 'plain')],
  ];
}

function footOf({ id, metadata }: Message, fork: MessageActions['fork']): Node[] {
  const { model, usage } = metadata as { model?: string; usage?: RunUsage };
  const facts = [model, ...(usage === undefined ? [] : usageFacts(usage))].filter(
    (fact) => fact !== undefined && fact !== null,
  );
  return [
    h('span', { class: 'quiet' }, facts.join(' · ')),
    button('Fork here', () => fork(id), {
      class: 'plain small',
      title: 'Creates a session that shares the past up to and including this message',
    }),
  ];
}

function usageFacts({ inputTokens, outputTokens, cachedInputTokens = 0, credits = 0 }: RunUsage): string[] {
  if (inputTokens + outputTokens + credits === 0) return [];
  const cached = cachedInputTokens === 0 ? '' : ` (${formatCount(cachedInputTokens)} cached)`;
  return [
    `${formatCount(inputTokens)} tokens in${cached}, ${formatCount(outputTokens)} out`,
    ...(credits === 0 ? [] : [credits === 1 ? '1 credit' : `${formatCount(credits)} credits`]),
  ];
}

function formatCount(count: number): string {
  return count.toLocaleString('en');
}

const outcomeTexts = {
  failed: 'The run failed.',
  cancelled: 'The run was stopped.',
  interrupted: 'The run was interrupted.',
  expired: 'It waited too long and was not sent to the model.',
} as const;

function cancellationTexts(hasStarted: boolean): [word: string, text: string] {
  return hasStarted ? ['stopped', outcomeTexts.cancelled] : ['removed', 'It was not sent to the model.'];
}

function outcomeView({ status, reason, hasStarted }: Outcome, retry: () => Promise<void>): HTMLElement {
  const isCancelled = status === 'cancelled';
  const [word, text] = isCancelled ? cancellationTexts(hasStarted) : [status, reason ?? outcomeTexts[status]];
  return h(
    'div',
    { class: isCancelled ? 'outcome' : 'outcome bad' },
    pill(word, isCancelled ? 'plain' : 'bad'),
    h('p', {}, text),
    button('Retry', retry, { class: 'small', title: 'Sends the same prompt again' }),
  );
}

interface DrawnPart {
  key: string;
  /** Set for a text part, which grows in place. */
  markdown: Markdown | null;
}

// Draws a part only if it has changed.
function drawInto(
  body: HTMLElement,
  index: number,
  part: UiMessagePart,
  { pendingCalls, previous }: { pendingCalls: ReadonlySet<string>; previous: DrawnPart | undefined },
): DrawnPart {
  const isPending = part.type === 'dynamic-tool' && pendingCalls.has(part.toolCallId);
  const key = keyOf(part, isPending);
  const oldNode = body.children[index];
  let drawnPart = previous;
  if (drawnPart?.key !== key || oldNode === undefined) {
    const { element, markdown } = drawPart(part, isPending);
    // Details that the reader has opened stay open.
    if (oldNode instanceof HTMLDetailsElement && element instanceof HTMLDetailsElement)
      element.open = oldNode.open;
    if (oldNode === undefined) body.append(element);
    else oldNode.replaceWith(element);
    drawnPart = { key, markdown };
  }
  if (part.type === 'text' || part.type === 'reasoning') {
    body.children[index]?.classList.toggle('growing', part.type === 'text' && part.state === 'streaming');
    drawnPart.markdown?.update(part.text);
  }
  return drawnPart;
}

function keyOf(part: UiMessagePart, isPending: boolean): string {
  if (part.type === 'text' || part.type === 'reasoning') return part.type;
  if (part.type === 'dynamic-tool') return `${part.toolCallId} ${part.state} ${isPending}`;
  return JSON.stringify(part);
}

function drawPart(
  part: UiMessagePart,
  isPending: boolean,
): { element: HTMLElement; markdown: Markdown | null } {
  if (part.type !== 'text' && part.type !== 'reasoning')
    return { element: drawFixedPart(part, isPending), markdown: null };
  const text = h('div', { class: 'text' });
  return {
    element:
      part.type === 'text' ? text : h('details', { class: 'reasoning' }, h('summary', {}, 'Reasoning'), text),
    markdown: createMarkdown(text),
  };
}

function drawFixedPart(
  part: Exclude<UiMessagePart, { type: 'text' | 'reasoning' }>,
  isPending: boolean,
): HTMLElement {
  switch (part.type) {
    case 'dynamic-tool': {
      const { toolName, state } = part;
      const word = {
        'input-available': isPending ? pill('waits for you', 'wait') : pill('running', 'busy'),
        'output-available': pill('done', 'good'),
        'output-error': pill('failed', 'bad'),
        'output-denied': pill('denied', 'bad'),
      }[state];
      return h(
        'details',
        { class: 'tool' },
        h('summary', {}, h('code', {}, showControls(toolName)), ' ', word),
        h('p', { class: 'label' }, 'Input'),
        json(part.input ?? null),
        state !== 'input-available' &&
          h('p', { class: 'label' }, state === 'output-available' ? 'Output' : 'Reason'),
        state === 'output-available' && json(part.output ?? null),
        (state === 'output-error' || state === 'output-denied') &&
          h('p', { class: 'bad' }, showControls(part.errorText ?? part.approval?.reason ?? '')),
      );
    }
    case 'source-url':
      return h('p', { class: 'quiet' }, 'Source: ', sourceView(part));
    case 'data-attachment':
      return h(
        'p',
        { class: 'attachment' },
        showControls(part.data.fileName),
        h('span', { class: 'quiet' }, ` ${showControls(part.data.contentType)}, ${part.data.size} bytes`),
      );
    case 'file':
      return h('p', { class: 'attachment' }, showControls(part.filename ?? part.mediaType));
    default:
      return h('div', {});
  }
}

// A URL of another scheme, such as `javascript:`, is shown as text without a link.
function sourceView({ url, title }: Extract<UiMessagePart, { type: 'source-url' }>): HTMLElement {
  const label = showControls(title ?? url);
  if (!/^https?:\/\//i.test(url)) return h('code', {}, showControls(url));
  return h('a', { href: url, title: showControls(url), target: '_blank', rel: 'noopener noreferrer' }, label);
}

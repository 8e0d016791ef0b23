// One message on the page. Its parts are drawn one by one and only where they have changed, so that a text may grow while
// somebody reads, marks or has opened what stands above it.
import type { UiMessagePart } from '@townhall/agent';
import { ago, button, fill, fillWhenChanged, h, json, pill, showControls } from './elements.ts';
import { createProse, type Prose } from './markdown.ts';
import type { Message, Outcome } from './thread.ts';

export interface MessageState {
  /** The calls that wait for a person. */
  asked: ReadonlySet<string>;
  /** How many are ahead of a message that is queued. */
  place: number | null;
  outcome: Outcome | undefined;
}

export interface MessageView {
  element: HTMLElement;
  draw(message: Message, state: MessageState): void;
}

export interface MessageActions {
  fork(messageId: string): Promise<void>;
  /** Sends the prompt of the message's run again. */
  retry(message: Message): Promise<void>;
}

export function createMessageView(role: Message['role'], { fork, retry }: MessageActions): MessageView {
  const head = h('header', {});
  const body = h('div', { class: 'body' });
  const end = h('div', {});
  const foot = h('footer', {});
  const element = h('article', { class: `message ${role}` }, head, body, end, foot);
  const drawn: DrawnPart[] = [];
  let footKey = '';

  return {
    element,
    draw(message, { asked, place, outcome }) {
      element.dataset['message'] = message.id;
      const { metadata, isOpen, parts } = message;
      element.setAttribute('aria-busy', String(isOpen));
      const createdAt = metadata['createdAt'];
      element.classList.toggle('waits', place !== null);
      fill(
        head,
        h('strong', {}, role === 'user' ? 'You' : 'Agent'),
        ' ',
        typeof createdAt === 'string' && ago(createdAt),
        place !== null && [' ', pill(`queued, ${place} ahead`, 'wait')],
      );
      const shown = parts.filter((part) => part.type !== 'step-start');
      for (const [index, part] of shown.entries())
        drawn[index] = drawInto(body, index, part, { asked, drawn: drawn[index] });
      while (body.children.length > shown.length) body.lastElementChild?.remove();
      drawn.length = shown.length;
      if (isOpen && shown.length === 0) element.classList.add('begun');
      else element.classList.remove('begun');
      fillWhenChanged(end, outcome ?? null, () => outcome && outcomeView(outcome, () => retry(message)));
      const key = JSON.stringify([isOpen, metadata]);
      if (key !== footKey) fill(foot, isOpen ? null : footOf(message));
      footKey = key;
    },
  };

  function footOf({ id, metadata }: Message): Node[] {
    const { model, usage } = metadata as {
      model?: string;
      usage?: { inputTokens: number; outputTokens: number };
    };
    const facts = [
      model,
      usage === undefined ? undefined : `${usage.inputTokens} tokens in, ${usage.outputTokens} out`,
    ].filter((fact) => fact !== undefined && fact !== null);
    return [
      h('span', { class: 'quiet' }, facts.join(' · ')),
      button('Fork here', () => fork(id), {
        class: 'plain small',
        title: 'A new session that shares the past up to and with this message',
      }),
    ];
  }
}

const outcomeTexts = {
  failed: 'The run failed.',
  cancelled: 'The run was stopped.',
  interrupted: 'The run was interrupted.',
  expired: 'It waited too long and was not sent to the model.',
} as const;

function outcomeView({ status, reason, hasStarted }: Outcome, retry: () => Promise<void>): HTMLElement {
  const isCancelled = status === 'cancelled';
  const word = !isCancelled ? status : hasStarted ? 'stopped' : 'taken out';
  const text = !isCancelled
    ? (reason ?? outcomeTexts[status])
    : hasStarted
      ? outcomeTexts.cancelled
      : 'It was not sent to the model.';
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
  /** Of a text, which grows in place. */
  prose: Prose | null;
}

// Draws a part where it has changed and leaves it alone otherwise.
function drawInto(
  body: HTMLElement,
  index: number,
  part: UiMessagePart,
  { asked, drawn }: { asked: ReadonlySet<string>; drawn: DrawnPart | undefined },
): DrawnPart {
  const isAsked = part.type === 'dynamic-tool' && asked.has(part.toolCallId);
  const key = keyOf(part, isAsked);
  const old = body.children[index];
  let current = drawn;
  if (current?.key !== key || old === undefined) {
    const { element, prose } = drawPart(part, isAsked);
    // What somebody has opened stays open.
    if (old instanceof HTMLDetailsElement && element instanceof HTMLDetailsElement) element.open = old.open;
    if (old === undefined) body.append(element);
    else old.replaceWith(element);
    current = { key, prose };
  }
  if (part.type === 'text' || part.type === 'reasoning') {
    body.children[index]?.classList.toggle('growing', part.type === 'text' && part.state === 'streaming');
    current.prose?.update(part.text);
  }
  return current;
}

function keyOf(part: UiMessagePart, isAsked: boolean): string {
  if (part.type === 'text' || part.type === 'reasoning') return part.type;
  if (part.type === 'dynamic-tool') return `${part.toolCallId} ${part.state} ${isAsked}`;
  return JSON.stringify(part);
}

function drawPart(part: UiMessagePart, isAsked: boolean): { element: HTMLElement; prose: Prose | null } {
  if (part.type !== 'text' && part.type !== 'reasoning')
    return { element: drawFixedPart(part, isAsked), prose: null };
  const text = h('div', { class: 'text' });
  return {
    element:
      part.type === 'text' ? text : h('details', { class: 'reasoning' }, h('summary', {}, 'Thoughts'), text),
    prose: createProse(text),
  };
}

function drawFixedPart(
  part: Exclude<UiMessagePart, { type: 'text' | 'reasoning' }>,
  isAsked: boolean,
): HTMLElement {
  switch (part.type) {
    case 'dynamic-tool': {
      const { toolName, state } = part;
      const word = {
        'input-available': isAsked ? pill('asks you', 'wait') : pill('runs', 'busy'),
        'output-available': pill('done', 'good'),
        'output-error': pill('failed', 'bad'),
      }[state];
      return h(
        'details',
        { class: 'tool' },
        h('summary', {}, h('code', {}, showControls(toolName)), ' ', word),
        h('p', { class: 'label' }, 'Given'),
        json(part.input ?? null),
        state !== 'input-available' &&
          h('p', { class: 'label' }, state === 'output-error' ? 'It said' : 'Gave back'),
        state === 'output-available' && json(part.output ?? null),
        state === 'output-error' && h('p', { class: 'bad' }, showControls(part.errorText ?? '')),
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

// An address of another kind, such as `javascript:`, is shown and leads nowhere.
function sourceView({ url, title }: Extract<UiMessagePart, { type: 'source-url' }>): HTMLElement {
  const label = showControls(title ?? url);
  if (!/^https?:\/\//i.test(url)) return h('code', {}, showControls(url));
  return h('a', { href: url, title: showControls(url), target: '_blank', rel: 'noopener noreferrer' }, label);
}

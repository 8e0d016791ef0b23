// One message on the page. Its parts are drawn one by one and only where they have changed, so that a text may grow while
// somebody reads, marks or has opened what stands above it.
import type { UiMessagePart } from '@townhall/agent';
import { ago, button, fill, fillWhenChanged, h, json, pill } from './elements.ts';
import { prose } from './prose.ts';
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
  const drawn: string[] = [];
  let footKey = '';

  return {
    element,
    draw(message, { asked, place, outcome }) {
      element.dataset['message'] = message.id;
      const { metadata, isOpen, parts } = message;
      element.setAttribute('aria-busy', String(isOpen));
      const createdAt = metadata['createdAt'];
      element.classList.toggle('waits', place !== null);
      fill(head, h('strong', {}, role === 'user' ? 'You' : 'Agent'), ' ', typeof createdAt === 'string' && ago(createdAt), place !== null && [' ', pill(`queued, ${place} ahead`, 'wait')]);
      const shown = parts.filter((part) => part.type !== 'step-start');
      for (const [index, part] of shown.entries()) {
        const isAsked = part.type === 'dynamic-tool' && asked.has(part.toolCallId);
        const key = `${keyOf(part)} ${isAsked}`;
        if (drawn[index] === key) continue;
        drawn[index] = key;
        const old = body.children[index];
        const fresh = drawPart(part, isAsked);
        // What somebody has opened stays open.
        if (old instanceof HTMLDetailsElement && fresh instanceof HTMLDetailsElement) fresh.open = old.open;
        if (old === undefined) body.append(fresh);
        else old.replaceWith(fresh);
      }
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
    const { model, usage } = metadata as { model?: string; usage?: { inputTokens: number; outputTokens: number } };
    const facts = [model, usage === undefined ? undefined : `${usage.inputTokens} tokens in, ${usage.outputTokens} out`].filter((fact) => fact !== undefined && fact !== null);
    return [
      h('span', { class: 'quiet' }, facts.join(' · ')),
      button('Fork here', () => fork(id), { class: 'plain small', title: 'A new session that shares the past up to and with this message' }),
    ];
  }
}

const outcomeTexts = { failed: 'The run failed.', cancelled: 'The run was stopped.', interrupted: 'The run was interrupted.', expired: 'It waited too long and was not sent to the model.' } as const;

function outcomeView({ status, reason, hasStarted }: Outcome, retry: () => Promise<void>): HTMLElement {
  const isCancelled = status === 'cancelled';
  const word = !isCancelled ? status : hasStarted ? 'stopped' : 'taken out';
  const text = !isCancelled ? (reason ?? outcomeTexts[status]) : hasStarted ? outcomeTexts.cancelled : 'It was not sent to the model.';
  return h(
    'div',
    { class: isCancelled ? 'outcome' : 'outcome bad' },
    pill(word, isCancelled ? 'plain' : 'bad'),
    h('p', {}, text),
    button('Retry', retry, { class: 'small', title: 'Sends the same prompt again' }),
  );
}

function keyOf(part: UiMessagePart): string {
  if (part.type === 'text' || part.type === 'reasoning') return `${part.type} ${part.state ?? 'done'} ${part.text}`;
  if (part.type === 'dynamic-tool') return `${part.toolCallId} ${part.state}`;
  return JSON.stringify(part);
}

function drawPart(part: UiMessagePart, isAsked: boolean): HTMLElement {
  switch (part.type) {
    case 'text':
      return h('div', { class: part.state === 'streaming' ? 'text growing' : 'text' }, prose(part.text));
    case 'reasoning':
      return h('details', { class: 'reasoning' }, h('summary', {}, 'Thoughts'), prose(part.text));
    case 'dynamic-tool': {
      const { toolName, state } = part;
      const word = { 'input-available': isAsked ? pill('asks you', 'wait') : pill('runs', 'busy'), 'output-available': pill('done', 'good'), 'output-error': pill('failed', 'bad') }[state];
      return h(
        'details',
        { class: 'tool' },
        h('summary', {}, h('code', {}, toolName), ' ', word),
        h('p', { class: 'label' }, 'Given'),
        json(part.input ?? null),
        state !== 'input-available' && h('p', { class: 'label' }, state === 'output-error' ? 'It said' : 'Gave back'),
        state === 'output-available' && json(part.output ?? null),
        state === 'output-error' && h('p', { class: 'bad' }, part.errorText ?? ''),
      );
    }
    case 'source-url':
      return h('p', { class: 'quiet' }, 'Source: ', h('a', { href: /^https?:/.test(part.url) ? part.url : '#', target: '_blank', rel: 'noopener noreferrer' }, part.title ?? part.url));
    case 'data-attachment':
      return h('p', { class: 'attachment' }, part.data.fileName, h('span', { class: 'quiet' }, ` ${part.data.contentType}, ${part.data.size} bytes`));
    case 'file':
      return h('p', { class: 'attachment' }, part.filename ?? part.mediaType);
    default:
      return h('div', {});
  }
}

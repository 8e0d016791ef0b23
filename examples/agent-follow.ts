// A conversation as it grows: follows a session, folds its events into UIMessages and draws them, without a
// framework. Run it beside `npm start`, in as many terminals as you like:
//
//   npx node examples/agent-follow.ts --session demo                     follows until Ctrl-C
//   npx node examples/agent-follow.ts --session demo "Tell me a story"   sends a prompt, and follows until
//                                                                        its answer
//
// All show the same messages. One that is ended may start again with --after SEQ, or from the first event.
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { createAgentClient, type SessionEvent, type UiMessage, type UiMessagePart } from '@townhall/agent';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    session: { type: 'string', default: 'example' },
    after: { type: 'string', default: '0' },
    name: { type: 'string', default: '' },
  },
});
const baseUrl = process.env['TOWNHALL_AGENT_URL'] ?? 'http://127.0.0.1:5314';
const token =
  process.env['TOWNHALL_AGENT_TOKEN'] ?? (await readFile('data/agent/agent.token', 'utf8')).trim();
const agent = createAgentClient({ baseUrl, token });
const { session: sessionId, name } = values;
const [text] = positionals;

/** The messages of a session, built from its events alone. */
function createThread() {
  const messages = new Map<string, UiMessage>();
  const openParts = new Map<string, Extract<UiMessagePart, { type: 'text' | 'reasoning' }>>();

  function textOf(messageId: string, partId: string, type: 'text' | 'reasoning') {
    const existing = openParts.get(partId);
    if (existing) return existing;
    const part = { type, text: '', state: 'streaming' as const };
    openParts.set(partId, part);
    messages.get(messageId)?.parts.push(part);
    return part;
  }

  return {
    messages: () => [...messages.values()],
    /** Returns whether the display changes. */
    apply(event: SessionEvent): boolean {
      switch (event.type) {
        case 'message.created':
          messages.set(event.messageId, { id: event.messageId, role: event.role, parts: [] });
          return true;
        case 'message.completed':
          messages.set(event.messageId, event.message);
          return true;
        case 'part.started':
          textOf(event.messageId, event.partId, event.partType);
          return false;
        case 'part.snapshot':
          textOf(event.messageId, event.partId, event.partType).text = event.text;
          return true;
        case 'part.delta': {
          const part = openParts.get(event.partId);
          // Cutting at the offset makes a repeated delta harmless.
          if (part) part.text = part.text.slice(0, event.offset) + event.delta;
          return true;
        }
        case 'part.ended':
          Object.assign(textOf(event.messageId, event.partId, event.partType), {
            text: event.text,
            state: 'done',
          });
          openParts.delete(event.partId);
          return true;
        default:
          return event.type.startsWith('tool.');
      }
    },
  };
}

// Removes control characters: a model or tool must not move this terminal's cursor.
const withoutControls = (raw: string) => raw.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');

function linesOf(messages: readonly UiMessage[]): string[] {
  return messages.map(({ role, parts }) => {
    const texts = parts.flatMap((part) => {
      if (part.type === 'text') return [part.text];
      return part.type === 'dynamic-tool' ? [`[${part.toolName}: ${part.state}]`] : [];
    });
    const isGrowing = parts.some((part) => part.type === 'text' && part.state === 'streaming');
    return withoutControls(
      `${role === 'user' ? 'You  ' : 'Agent'}  ${texts.join(' ')}${isGrowing ? '▌' : ''}`,
    );
  });
}

let seq = 0;
let status = 'joining';
// On a terminal the text is redrawn as it grows; in a file each complete message is one line.
function draw(messages: readonly UiMessage[]): void {
  if (!process.stdout.isTTY) return;
  const head = `${name === '' ? '' : `${name} · `}session ${sessionId} · event ${seq} · ${status}`;
  process.stdout.write(
    `\u001b[2J\u001b[H\u001b[2m${withoutControls(head)}\u001b[0m\n\n${linesOf(messages).join('\n\n')}\n`,
  );
}

await agent.sessions.create({ id: sessionId, ifExists: 'return' });
if (text !== undefined) await agent.sessions.prompt({ sessionId, text });

const thread = createThread();
const onRejoin = ({ delayMs, after }: { delayMs: number; after: number }) => {
  status = `lost; joining again after event ${after} in ${Math.round(delayMs)} ms`;
  if (process.stdout.isTTY) draw(thread.messages());
  else console.error(status);
};
for await (const event of agent.sessions.follow(
  { sessionId, after: Number(values.after), until: text === undefined ? undefined : 'idle' },
  { onRejoin },
)) {
  if ('seq' in event) ({ seq } = event);
  const hasStatus = event.type === 'status.changed' || event.type === 'stream.ready';
  if (hasStatus) ({ status } = event);
  if (thread.apply(event) || hasStatus) draw(thread.messages());
  if (!process.stdout.isTTY && event.type === 'message.completed')
    console.log(`${event.seq}  ${linesOf([event.message]).join('')}`);
}

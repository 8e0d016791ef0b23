// A conversation as it grows: follows a session, folds its events into UIMessages and draws them, without a framework.
// Run it beside `npm start`: npx node examples/agent-follow.ts "Which files are there?" [SESSION]
// Start it several times with one SESSION: all see the same, and one that is ended and started again misses nothing.
import { readFile } from 'node:fs/promises';
import { createAgentClient, type SessionEvent, type UiMessage, type UiMessagePart } from '@townhall/agent';

const baseUrl = process.env['TOWNHALL_AGENT_URL'] ?? 'http://127.0.0.1:5314';
const token = process.env['TOWNHALL_AGENT_TOKEN'] ?? (await readFile('data/agent/agent.token', 'utf8')).trim();
const agent = createAgentClient({ baseUrl, token });
const [text, sessionId = 'example'] = process.argv.slice(2);

/** The messages of a session, from nothing but its events. */
function createThread() {
  const messages = new Map<string, UiMessage>();
  const open = new Map<string, Extract<UiMessagePart, { type: 'text' | 'reasoning' }>>();

  function textOf(messageId: string, partId: string, type: 'text' | 'reasoning') {
    const known = open.get(partId);
    if (known) return known;
    const part = { type, text: '', state: 'streaming' as const };
    open.set(partId, part);
    messages.get(messageId)?.parts.push(part);
    return part;
  }

  return {
    messages: () => [...messages.values()],
    /** Whether there is something new to see. */
    take(event: SessionEvent): boolean {
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
          const part = open.get(event.partId);
          // The offset says where the text belongs, whatever came before.
          if (part) part.text = part.text.slice(0, event.offset) + event.delta;
          return true;
        }
        case 'part.ended':
          Object.assign(textOf(event.messageId, event.partId, event.partType), { text: event.text, state: 'done' });
          open.delete(event.partId);
          return true;
        default:
          return event.type.startsWith('tool.');
      }
    },
  };
}

function draw(messages: readonly UiMessage[]): void {
  const lines = messages.map(({ role, parts }) => {
    const said = parts.flatMap((part) => (part.type === 'text' ? [part.text] : part.type === 'dynamic-tool' ? [`[${part.toolName}: ${part.state}]`] : []));
    return `${role === 'user' ? 'You' : 'Agent'}: ${said.join(' ')}`;
  });
  // A terminal is drawn anew; into a file only what is whole goes.
  if (process.stdout.isTTY) process.stdout.write(`\u001b[2J\u001b[H${lines.join('\n\n')}\n`);
}

await agent.sessions.create({ id: sessionId, ifExists: 'return' });
if (text !== undefined) await agent.sessions.prompt({ sessionId, text });

const thread = createThread();
const onRejoin = ({ delayMs, after }: { delayMs: number; after: number }) => console.error(`Joining again after ${after}, in ${Math.round(delayMs)} ms.`);
for await (const event of agent.sessions.follow({ sessionId, until: text === undefined ? undefined : 'idle' }, { onRejoin })) {
  if (thread.take(event)) draw(thread.messages());
}
if (!process.stdout.isTTY) for (const { role, parts } of thread.messages()) console.log(`${role}: ${parts.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join(' ')}`);

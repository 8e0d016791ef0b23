// The backend of a product with an agent: a conversation per customer, streamed to the customer's
// browser. Run it beside `npm start`: npx node examples/agent-in-a-product.ts
//
//   curl -N http://127.0.0.1:8080/chat -H 'x-customer: ada' -d 'How do I stream an answer?'
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { AgentError, createAgentClient, type SessionEvent } from '@townhall/agent';

// #region client
const agent = createAgentClient({
  baseUrl: process.env['TOWNHALL_AGENT_URL'] ?? 'http://127.0.0.1:5314',
  token: process.env['TOWNHALL_AGENT_TOKEN'] ?? (await readFile('data/agent/agent.token', 'utf8')).trim(),
});
// #endregion

// #region session
/** The customer's conversation. The first call creates it, later ones return it. */
async function openConversation(customer: string): Promise<string> {
  const { id } = await agent.sessions.create({
    id: `customer-${customer}`,
    ifExists: 'return',
    title: `Support for ${customer}`,
    system: 'You answer questions about our shop in two sentences.',
    metadata: { customer },
    workspace: 'folder',
  });
  return id;
}
// #endregion

// #region words
/** Returns the new words of an event: pieces while the model writes, the rest when a part ends. */
function createWordReader(): (event: SessionEvent) => string {
  const lengths = new Map<string, number>();
  return (event) => {
    if (event.type !== 'part.delta' && event.type !== 'part.snapshot' && event.type !== 'part.ended')
      return '';
    if (event.partType !== 'text') return '';
    const part = `${event.messageId} ${event.partId}`;
    const length = lengths.get(part) ?? 0;
    const start = event.type === 'part.delta' ? event.offset : 0;
    const text = event.type === 'part.delta' ? event.delta : event.text;
    lengths.set(part, Math.max(length, start + text.length));
    return text.slice(Math.max(0, length - start));
  };
}
// #endregion

// #region stream
/**
 * Sends the customer's text and streams what the browser shows: the words of the answer, then its
 * end.
 */
async function chat(customer: string, prompt: string, response: ServerResponse): Promise<void> {
  const sessionId = await openConversation(customer);
  const { seq } = await agent.sessions.prompt({ sessionId, text: prompt });
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const send = (event: object) => response.write(`data: ${JSON.stringify(event)}\n\n`);
  const readWords = createWordReader();
  for await (const event of agent.sessions.follow({ sessionId, after: seq, until: 'idle' })) {
    if (response.destroyed) return;
    const text = readWords(event);
    if (text !== '') send({ text });
    if (event.type === 'run.settled') send({ outcome: event.outcome });
  }
  response.end();
}
// #endregion

/** Stands for your own login: a session cookie of your product, or a verified token. */
function customerOf(request: IncomingMessage): string | undefined {
  const customer = request.headers['x-customer'];
  return typeof customer === 'string' && /^[\w-]{1,64}$/.test(customer) ? customer : undefined;
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const customer = customerOf(request);
  if (customer === undefined || request.method !== 'POST' || request.url !== '/chat') {
    response.writeHead(customer === undefined ? 401 : 404).end();
    return;
  }
  try {
    await chat(customer, await text(request), response);
  } catch (error) {
    if (!AgentError.isInstance(error)) throw error;
    console.error(`${error.code}: ${error.message} (request ${error.requestId})`);
    if (response.headersSent) response.destroy();
    else response.writeHead(502).end('The assistant is not available. Try again in a minute.');
  }
}

const server = createServer((request, response) => {
  void answer(request, response);
});
server.listen(Number(process.env['PORT'] ?? 8080), '127.0.0.1', () => {
  console.log(`Listening at http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});

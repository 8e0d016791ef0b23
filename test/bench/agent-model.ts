// The scripted model of the agent benchmark, in a process of its own so that it shares no event
// loop with the measuring clients. It supports our gateway's stream format and chat completions. The
// prompt sets the answer: TOK=n words, GAP=ms between them, and STAMP writes the machine's
// monotonic clock into each. The first line of output is the port.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { monotonicMs } from './agent-runtimes.ts';

interface ModelRequest {
  stream?: boolean;
  /** The messages of our gateway's protocol. */
  prompt?: Message[];
  /** The messages of a chat completion. */
  messages?: Message[];
}

interface Message {
  role: string;
  content: unknown;
}

/** The answer that the newest input of the user requests. */
interface Script {
  words: number;
  gapMs: number;
  isStamped: boolean;
}

/** Writes the parts of an answer in one of the two formats. */
interface AnswerFormat {
  start(): void;
  text(text: string): void;
  end(words: number): void;
}

type Send = (part: object) => void;

const townhallFormat = (send: Send): AnswerFormat => ({
  start() {
    send({ type: 'stream-start', warnings: [] });
    send({ type: 'text-start', id: 't' });
  },
  text: (delta) => send({ type: 'text-delta', id: 't', delta }),
  end(words) {
    send({ type: 'text-end', id: 't' });
    send({
      type: 'finish',
      finishReason: { unified: 'stop' },
      usage: { inputTokens: { total: 10 }, outputTokens: { total: words } },
    });
  },
});

function completionFormat(send: Send): AnswerFormat {
  const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'fake-1' };
  const sendDelta = (delta: object, finishReason: string | null) =>
    send({ ...head, choices: [{ index: 0, delta, finish_reason: finishReason }] });
  return {
    start: () => sendDelta({ role: 'assistant', content: '' }, null),
    text: (content) => sendDelta({ content }, null),
    end(words) {
      sendDelta({}, 'stop');
      send({ ...head, choices: [], usage: usageOf(words) });
    },
  };
}

const usageOf = (words: number) => ({
  prompt_tokens: 10,
  completion_tokens: words,
  total_tokens: 10 + words,
});

function readScript({ prompt, messages = [] }: ModelRequest): Script {
  const input = JSON.stringify((prompt ?? messages).findLast(({ role }) => role === 'user')?.content ?? '');
  return {
    words: Number(/TOK=(\d+)/.exec(input)?.[1] ?? 1),
    gapMs: Number(/GAP=(\d+)/.exec(input)?.[1] ?? 0),
    isStamped: input.includes('STAMP'),
  };
}

async function streamAnswer(
  response: ServerResponse,
  formatWith: (send: Send) => AnswerFormat,
  { words, gapMs, isStamped }: Script,
): Promise<void> {
  const format = formatWith((part) => void response.write(`data: ${JSON.stringify(part)}\n\n`));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  format.start();
  for (let index = 0; index < words && !response.destroyed; index += 1) {
    format.text(isStamped ? `<${monotonicMs().toFixed(2)}>` : `word${index} `);
    if (gapMs > 0) await new Promise((resolve) => setTimeout(resolve, gapMs));
  }
  format.end(words);
  response.end('data: [DONE]\n\n');
}

/** The peer requests a title for each session, and not as a stream. */
function sendTitle(response: ServerResponse, { words }: Script): void {
  const message = { role: 'assistant', content: 'A title' };
  const choices = [{ index: 0, message, finish_reason: 'stop' }];
  const head = { id: 'c', object: 'chat.completion', created: 1, model: 'fake-1' };
  response
    .writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ ...head, choices, usage: usageOf(words) }));
}

async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  const isOurs = incoming.url === '/v1/ai/stream';
  if (!isOurs && incoming.url !== '/v1/chat/completions')
    return void response.writeHead(404, { 'content-type': 'application/json' }).end('{}');
  const modelRequest = JSON.parse(Buffer.concat(pieces).toString()) as ModelRequest;
  const script = readScript(modelRequest);
  if (isOurs) await streamAnswer(response, townhallFormat, script);
  else if (modelRequest.stream === true) await streamAnswer(response, completionFormat, script);
  else sendTitle(response, script);
}

const provider = createServer((incoming, response) => {
  answer(incoming, response).catch(() => response.destroy());
});
provider.listen(0, '127.0.0.1', () => console.log((provider.address() as AddressInfo).port));
